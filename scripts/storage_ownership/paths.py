"""Confinement: nothing outside the repository is looked at or run.

A path is resolved as the file system does it, symbolic links included, and must end
inside the root. What stays inside must also be written exactly: relative, with `/`, and
without a detour. Manifest, artifacts, working folders and path-bearing arguments are
all held to it.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from .commands import node_file, path_indices
from .diagnostics import Found, fault
from .manifest import Command, Manifest


def confined(root: Path, subject: str, field: str, path: str, cwd: str = ".") -> Found:
    """What is wrong with one path, if anything."""
    told = {"subject": subject, "field": field, "path": path}
    if not _stays_inside(root, cwd, path):
        message = f"`{field}` of `{subject}` leads out of the repository: {path!r}."
        yield fault("E_PATH_ESCAPE", message, **told)
    elif not _is_exact(path):
        message = f"`{field}` of `{subject}` is no exact relative path: {path!r}."
        yield fault("E_PATH_FORM", message, **told)


def _stays_inside(root: Path, cwd: str, path: str) -> bool:
    if "\0" in path:
        return True  # no file system knows it, so it leads nowhere: a matter of form
    try:
        resolved = (root / cwd / path).resolve()
    except (OSError, RuntimeError):  # links in a circle lead nowhere inside
        return False
    return resolved.is_relative_to(root.resolve())


def _is_exact(path: str) -> bool:
    pure = PurePosixPath(path)
    return (
        path == str(pure)
        and not pure.is_absolute()
        and ".." not in pure.parts
        and "\\" not in path
        and path.isprintable()
    )


def every_path(root: Path, manifest: Manifest) -> Found:
    """All artifacts, working folders and path arguments, of deferred rows too."""
    for artifact in dict.fromkeys(row.artifact for row in manifest.obligations):
        yield from confined(root, artifact.id, "path", artifact.path)
        for number, path in enumerate(artifact.more_paths):
            yield from confined(root, artifact.id, f"more_paths[{number}]", path)
    for command in dict.fromkeys(row.command for row in manifest.obligations):
        yield from _command(root, command)


def _command(root: Path, command: Command) -> Found:
    found = list(confined(root, command.id, "cwd", command.cwd))
    yield from found
    if found:
        return
    bearing = {i for i in command.path_args if 0 <= i < len(command.argv)}
    for index in sorted(bearing | set(path_indices(command))):
        path = node_file(command.argv[index])
        yield from confined(root, command.id, f"argv[{index}]", path, command.cwd)
