"""The order of checking. Each stage ends the run if it finds anything.

Form, then paths, then the graph, then commands, then what active rows stand on; and,
where a commit matters, provenance and the transition from the base. Both tools take
these steps, so nothing is run that the checker would refuse.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .artifacts import artifacts_exist, targets_exist
from .commands import allowed, identities, node_file
from .diagnostics import Faults, fault, require
from .manifest import Manifest, parse
from .paths import confined, every_path
from .registry import graph, rows, states
from .repository import Repository
from .transition import transition


class Candidate(NamedTuple):
    """HEAD, the base that it is compared with, and its manifest."""

    repository: Repository
    base: str | None
    manifest: Manifest


def structure(root: Path, name: str) -> Manifest:
    """A manifest that is sound by itself, whatever Git says."""
    if not root.is_dir():
        message = f"The root `{root}` is no folder."
        raise Faults([fault("E_ROOT", message, root=str(root))])
    require(confined(root, "manifest", "--manifest", name))
    try:
        text = (root / name).read_text(encoding="utf-8")
    except OSError:
        message = f"There is no manifest `{name}`."
        raise Faults([fault("E_MANIFEST_MISSING", message, manifest=name)]) from None
    except UnicodeDecodeError:
        message = f"`{name}` is not UTF-8."
        raise Faults([fault("E_MANIFEST_SYNTAX", message, manifest=name)]) from None
    manifest = parse(text, name)
    require(every_path(root, manifest))
    require(graph(manifest))
    require(rows(manifest))
    require(states(manifest))
    require(allowed(manifest))
    require(identities(manifest))
    require(artifacts_exist(root, manifest))
    require(targets_exist(root, manifest))
    return manifest


def candidate(root: Path, name: str, revision: str | None) -> Candidate:
    """A sound manifest that HEAD holds and that may follow the base."""
    manifest = structure(root, name)
    repository = Repository.at(root)
    base = None if revision is None else repository.commit(revision)
    require(repository.clean())
    require(repository.untracked(_files(name, manifest)))
    if base is not None:
        require(transition(repository.manifest_of(base, name), manifest))
    return Candidate(repository, base, manifest)


def _files(name: str, manifest: Manifest) -> dict[tuple[str, str], None]:
    """What decides: the manifest, active artifacts, and what active commands name."""
    found = [("manifest", name)]
    for row in manifest.active:
        found += [(row.artifact.id, path) for path in row.artifact.paths]
        for index in row.command.path_args:
            path = Path(row.command.cwd) / node_file(row.command.argv[index])
            found.append((row.command.id, str(path)))
    return dict.fromkeys(found)
