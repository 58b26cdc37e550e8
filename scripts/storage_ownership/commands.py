"""Typed commands: the allow-list of each kind, and what an id stands for.

A kind fixes how an argv begins, which options may follow, and which elements name
files. There is no shell, no other executable, and no way to write a value into an
option.
"""

from __future__ import annotations

import re
from dataclasses import fields
from itertools import zip_longest
from typing import Any, NamedTuple

from .diagnostics import Diagnostic, Found, fault
from .manifest import Artifact, Command, Manifest


class Kind(NamedTuple):
    """The form of an argv after its fixed beginning."""

    lead: tuple[str, ...]
    first: re.Pattern[str]  # what follows the beginning
    path: re.Pattern[str]
    flags: re.Pattern[str]
    words: dict[str, frozenset[str]]  # options that take one of some words


ANYTHING, NOTHING = re.compile(r"(?s:.+)"), re.compile(r"(?!)")
KINDS = {
    "pytest": Kind(
        lead=("pytest",),
        first=ANYTHING,
        path=re.compile(r"[^:]+\.py(::\w+(\[.+\])?)*"),
        flags=re.compile(r"-q|-x"),
        words={"-m": frozenset({"slow", "shared", "reference"})},
    ),
    "python-script": Kind(
        lead=("python3",),
        first=re.compile(r"[^-].*\.py"),
        path=ANYTHING,
        flags=re.compile(r"--[a-z]+(-[a-z]+)*"),
        words={},
    ),
    "mypy": Kind(
        lead=("mypy", "--strict"),
        first=ANYTHING,
        path=ANYTHING,
        flags=NOTHING,
        words={},
    ),
}
ARTIFACTS = frozenset(
    {
        "contract-test",
        "typing-contract",
        "document",
        "registry",
        "report",
        "tutorial",
        "checker",
    }
)


def node_file(word: str) -> str:
    """The file of a pytest node id; any other path as it is."""
    return word.partition("::")[0]


def path_indices(command: Command) -> list[int]:
    """Which elements of an argv its kind takes for paths; none for an unknown kind."""
    kind = KINDS.get(command.kind)
    if kind is None:
        return []
    argv, start = command.argv, len(kind.lead)
    return [
        index
        for index in range(start, len(argv))
        if not argv[index].startswith("-") and argv[index - 1] not in kind.words
    ]


def allowed(manifest: Manifest) -> Found:
    """Each command against the list of its kind, and each artifact's kind."""
    for artifact in dict.fromkeys(row.artifact for row in manifest.obligations):
        if artifact.kind not in ARTIFACTS:
            message = f"`{artifact.kind}` of `{artifact.id}` is no kind of artifact."
            told = {"artifact_id": artifact.id, "actual": artifact.kind}
            yield fault("E_ARTIFACT_KIND", message, **told)
    for command in dict.fromkeys(row.command for row in manifest.obligations):
        if command.kind in KINDS:
            yield from _argv(command, KINDS[command.kind])
        else:
            message = f"`{command.kind}` of `{command.id}` is not on the allow-list."
            told = {"command_id": command.id, "actual": command.kind}
            yield fault("E_COMMAND_KIND", message, **told)


def _argv(command: Command, kind: Kind) -> Found:
    lead = command.argv[: len(kind.lead)]
    if lead != kind.lead:
        yield from unequal_argv(command.id, kind.lead, lead)
        return
    for index in range(len(lead), len(command.argv)):
        if not _fits(command.argv, kind, index):
            yield _refused(command, index)
    bearing = path_indices(command)
    if not bearing:
        yield _refused(command, len(command.argv))
    elif list(command.path_args) != bearing:
        told = {"expected": bearing, "actual": list(command.path_args)}
        message = f"The paths of `{command.id}` stand at {bearing}."
        yield fault("E_COMMAND_PATH_ARGS", message, command_id=command.id, **told)


def _fits(argv: tuple[str, ...], kind: Kind, index: int) -> bool:
    word, before = argv[index], argv[index - 1]
    if index == len(kind.lead) and not kind.first.fullmatch(word):
        return False
    if before in kind.words:
        return word in kind.words[before]
    if word in kind.words:
        return index + 1 < len(argv)
    return bool((kind.flags if word.startswith("-") else kind.path).fullmatch(word))


def _refused(command: Command, index: int) -> Diagnostic:
    actual = command.argv[index] if index < len(command.argv) else None
    message = f"Element {index} of `{command.id}` cannot be {actual!r}."
    told = {"command_id": command.id, "index": index, "actual": actual}
    return fault("E_COMMAND_ARGUMENT", message, **told)


def unequal_argv(
    command_id: str, expected: tuple[str, ...], actual: tuple[str, ...]
) -> Found:
    """The first element in which two argvs differ; None stands for no element."""
    pairs = enumerate(zip_longest(expected, actual))
    for index, (wanted, found) in pairs:
        if wanted != found:
            message = f"Element {index} of `{command_id}` is {found!r}, not {wanted!r}."
            told = {"index": index, "expected": wanted, "actual": found}
            yield fault("E_COMMAND_ARGV", message, command_id=command_id, **told)
            return


def differing(a: Any, b: Any) -> list[str]:
    """Names of the fields in which two values of one class differ."""
    names = [field.name for field in fields(a)]
    return [name for name in names if getattr(a, name) != getattr(b, name)]


def identities(manifest: Manifest) -> Found:
    """Commands bound to their row's artifact, and one value for each id."""
    artifacts: dict[str, Artifact] = {}
    commands: dict[str, Command] = {}
    runs: dict[tuple[Any, ...], str] = {}
    for row in manifest.obligations:
        artifact, command = row.artifact, row.command
        if command.artifact_id != artifact.id:
            message = f"`{command.id}` inspects another artifact than `{row.id}` has."
            told = {"expected": artifact.id, "actual": command.artifact_id}
            yield fault("E_COMMAND_ARTIFACT", message, command_id=command.id, **told)
        known = artifacts.setdefault(artifact.id, artifact)
        for field in differing(known, artifact):
            message = f"`{artifact.id}` has two values of `{field}`."
            told = {"artifact_id": artifact.id, "field": field}
            yield fault("E_ARTIFACT_IDENTITY", message, **told)
        yield from _same(commands.setdefault(command.id, command), command)
        run = (command.argv, command.cwd)
        first = runs.setdefault(run, command.id)
        if first != command.id:
            message = f"`{command.id}` would run what `{first}` runs."
            told = {"command_id": command.id, "duplicate_of": first}
            yield fault("E_COMMAND_DUPLICATE", message, **told)


def _same(known: Command, command: Command) -> Found:
    for field in differing(known, command):
        if field == "argv":
            yield from unequal_argv(command.id, known.argv, command.argv)
        else:
            message = f"`{command.id}` has two values of `{field}`."
            told = {"command_id": command.id, "field": field}
            yield fault("E_COMMAND_IDENTITY", message, **told)
