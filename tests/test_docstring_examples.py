"""Every example in a docstring runs, in each module of the package.

An example is an indented block after a paragraph, outside the sections (`Args:` and the
like), as the reference shows it. It runs by itself, with the names of its module and
the few of `given`; lines that begin with `python -m` run as commands.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.__main__ import main

ROOT = Path(__file__).parents[1]
SECTION = re.compile(r"(Args|Attributes|Cost|Raises|Returns|Source)( \([^)]*\))?:.*")


class Example(NamedTuple):
    """A block of code: of which module and name, and from which line."""

    module: str
    name: str
    line: int
    code: str


def blocks(docstring: str) -> Iterator[tuple[int, str]]:
    """The indented blocks outside of sections, with the lines at which they begin."""
    lines = [*docstring.split("\n"), "end"]
    in_section, start, before = False, -1, ""
    for k, line in enumerate(lines):
        indented = line.startswith("    ")
        if line and not indented:
            if start >= 0:
                block = "\n".join(text[4:] for text in lines[start:k])
                yield start, block.rstrip()
            in_section, start = bool(SECTION.fullmatch(line)), -1
        elif indented and not in_section and start < 0 and not before:
            start = k
        before = line


def examples() -> Iterator[Example]:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for file in sorted((ROOT / "tenferro_ad").rglob("*.py")):
        place = file.relative_to(ROOT).with_suffix("")
        module = ".".join(place.parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, kinds) and ast.get_docstring(node):
                text = ast.get_docstring(node) or ""
                first = node.body[0].lineno
                for line, code in blocks(text):
                    name = getattr(node, "name", "")
                    yield Example(module, name, first + line, code)


EXAMPLES = list(examples())


def given() -> dict[str, Any]:
    """What examples take for granted."""
    return {
        "np": np,
        "ta": ta,
        "x": ta.asarray([1.0, 2.0, 3.0]),
        "w": ta.variable([1.0, 1.0, 1.0]),
        "target": ta.asarray(2.0),
        "data": np.array([1.0, 2.0]),
        "device": "cpu",
    }


@pytest.mark.clause("g6-docstring-examples")
@pytest.mark.parametrize(
    "example", EXAMPLES, ids=lambda e: f"{e.module}.{e.name}".strip(".")
)
def test_an_example_runs(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if example.code.startswith("python -m"):
        run_commands(example.code)
        return
    names = dict(vars(import_module(example.module))) | given()
    source = "\n" * (example.line - 1) + example.code
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(source, example.module, "exec", dont_inherit=True), names)


def run_commands(code: str) -> None:
    """Lines `python -m tenferro_ad ...`, in a folder with two ledgers to compare."""
    for name in ("before.json", "after.json"):
        with ta.ledger() as led:
            ta.exp(ta.asarray([1.0]))
        Path(name).write_text(led.to_json(), encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        for line in code.splitlines():
            assert line.startswith("python -m tenferro_ad ")
            assert main(line.split()[3:]) == 0, line


@pytest.mark.clause("g6-docstring-examples")
def test_examples_are_found_where_a_reader_sees_them() -> None:
    names = {example.name for example in EXAMPLES}
    assert {"grad", "jvp", "vmap", "checkpoint", "compile", "ledger"} <= names
    assert {"Tape", "Runtime", "custom_vjp", "scan", "cond", "trace"} <= names
    assert {"forbid", "fused"} <= names  # a summary with a colon begins no section
    text = "Says.\n\n    a = 1\n\n    b = 2\n\nArgs:\n    x: is\n\n    no code\n"
    text += "More.\n    not code either\n\n    c = 3"
    assert list(blocks(text)) == [(2, "a = 1\n\nb = 2"), (13, "c = 3")]


def test_no_example_is_written_in_another_form() -> None:
    for file in (ROOT / "tenferro_ad").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert ">>> " not in text, file
        assert "\n    ```" not in text, file
