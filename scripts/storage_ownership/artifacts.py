"""What active rows stand on exists: artifacts, selectors, files and tests to run.

Deferred rows name a real future path, so nothing of theirs is looked for.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path
from typing import Any

from .commands import node_file
from .diagnostics import Found, fault
from .manifest import Artifact, Command, Manifest


def artifacts_exist(root: Path, manifest: Manifest) -> Found:
    """Every file of every active artifact, and the place that its selector names."""
    for artifact in dict.fromkeys(row.artifact for row in manifest.active):
        missing = [path for path in artifact.paths if not (root / path).is_file()]
        for path in missing:
            message = f"`{artifact.id}` of an active row has no file `{path}`."
            told = {"artifact_id": artifact.id, "path": path}
            yield fault("E_ARTIFACT_MISSING", message, **told)
        if not missing:
            yield from _selected(root, artifact)


def _selected(root: Path, artifact: Artifact) -> Found:
    if artifact.selector is None:
        return
    if artifact.selector not in places(root / artifact.path):
        message = f"`{artifact.path}` has no `{artifact.selector}`."
        told = {"artifact_id": artifact.id, "selector": artifact.selector}
        yield fault("E_ARTIFACT_SELECTOR", message, **told)


def targets_exist(root: Path, manifest: Manifest) -> Found:
    """Every file, folder and test that an active command names."""
    for command in dict.fromkeys(row.command for row in manifest.active):
        for index in command.path_args:
            if not _is_there(root, command, command.argv[index]):
                actual = command.argv[index]
                message = f"`{command.id}` names `{actual}`, which does not exist."
                told = {"command_id": command.id, "index": index, "actual": actual}
                yield fault("E_COMMAND_TARGET", message, **told)


def _is_there(root: Path, command: Command, word: str) -> bool:
    file = root / command.cwd / node_file(word)
    if command.kind != "pytest" or "::" not in word:
        return file.exists()
    name = re.sub(r"\[.+\]$", "", word.partition("::")[2]).replace("::", ".")
    return file.is_file() and name in places(file)


def places(file: Path) -> set[str]:
    """Names that a selector can mean, by the form of the file; none if it has none."""
    text = file.read_text(encoding="utf-8")
    try:
        match file.suffix:
            case ".py":
                return _definitions(ast.parse(text).body)
            case ".md":
                titles = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
                return {*titles, *re.findall(r'<a id="([^"]+)"></a>', text)}
            case ".json":
                return _keys(json.loads(text))
            case ".toml":
                return _keys(tomllib.loads(text))
    except (SyntaxError, ValueError, RecursionError):
        return set()
    return set()


def _definitions(body: list[ast.stmt], prefix: str = "") -> set[str]:
    found = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(prefix + node.name)
        if isinstance(node, ast.ClassDef):
            found |= _definitions(node.body, f"{prefix}{node.name}.")
    return found


def _keys(value: Any, prefix: str = "") -> set[str]:
    """Dotted keys of nested tables."""
    if not isinstance(value, dict):
        return set()
    names = {prefix + key for key in value}
    nested = (_keys(value[key], f"{prefix}{key}.") for key in value)
    return names.union(*nested)
