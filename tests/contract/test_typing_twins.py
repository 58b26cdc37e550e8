"""Clauses that a type checker shows: the refused lines of `tests/typing`, run here.

`make typecheck` proves that mypy refuses those lines; here each clause names its lines
and runs them, and the file is checked for ignores that are too wide.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[1] / "typing"
REFUSED = FOLDER / "test_refused.py"
KEPT = FOLDER / "test_kept.py"


@cache
def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"typing_twins_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*names: str, file: Path = REFUSED) -> None:
    """Run the named twins; each of them has a line that must not type-check."""
    lines = file.read_text(encoding="utf-8").splitlines()
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            assert ("type: ignore[" in text) == (file is REFUSED), node.name
    for name in names:
        getattr(load(file), name)()


@pytest.mark.clause("g1-test-typing")
def test_copies_shared_writes_overlaps_and_outliving_guards_are_refused() -> None:
    run(
        "test_owners_and_capabilities_offer_no_copy",
        "test_a_shared_view_prepares_no_write",
        "test_a_shared_pairing_is_no_write_pairing",
        "test_parts_are_named_by_keys_and_overlap_is_refused",
        "test_a_guard_does_not_outlive_its_block",
    )


@pytest.mark.clause("g2-test-root-locked")
def test_a_group_is_out_of_reach_while_its_children_live() -> None:
    run("test_children_offer_no_way_to_their_group")


@pytest.mark.clause("g7-test-typing")
def test_a_handle_yields_no_mutable_view_owner_or_reinterpretation() -> None:
    run(
        "test_a_handle_gives_no_mutable_view_and_no_owner_it_does_not_have",
        "test_a_retained_value_has_no_mutable_reinterpretation",
    )


@pytest.mark.clause("g4-rank-preserved")
def test_dtype_and_rank_are_kept_for_the_type_checker() -> None:
    run(
        "test_a_rank_is_not_lost_or_mistaken",
        "test_a_view_of_rank_two_is_none_of_rank_one",
        "test_a_dtype_is_not_lost_or_mistaken",
        "test_an_integer_key_drops_the_static_rank_and_splits_refuse_it",
    )
    run(
        "test_reading_keeps_dtype_and_rank",
        "test_writing_keeps_dtype_and_rank",
        "test_reinterpretation_has_the_rank_that_the_caller_names",
        file=KEPT,
    )


@pytest.mark.clause("g5-write-needs-exclusive")
def test_a_type_checker_refuses_a_write_from_shared_access() -> None:
    run(
        "test_a_shared_view_prepares_no_write",
        "test_a_shared_pairing_is_no_write_pairing",
    )


@pytest.mark.clause("g3-test-guard-across-submit")
def test_no_guard_or_view_is_held_across_submission() -> None:
    run(
        "test_a_view_is_no_input_of_detached_work",
        "test_a_host_guard_is_not_held_across_submission",
        "test_scoped_execution_lends_no_writable_view",
        "test_a_guard_of_a_handle_is_no_value_to_attach",
    )


def test_every_ignore_names_the_one_code_that_it_expects() -> None:
    text = REFUSED.read_text(encoding="utf-8")
    ignores = re.findall(r"# type: ignore(.*)", text)
    assert len(ignores) >= 30
    for codes in ignores:
        assert re.fullmatch(r"\[[a-z-]+(,[a-z-]+)?\]", codes), codes
    assert "type: ignore" not in KEPT.read_text(encoding="utf-8")
    tests = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    lines = text.splitlines()
    for test in tests:
        if test.name.startswith("test_"):  # each refusal has its twin in the same place
            body = "\n".join(lines[test.lineno - 1 : test.end_lineno])
            assert "type: ignore[" in body, test.name
            assert "pytest.raises" in body, test.name


@pytest.mark.slow
def test_the_type_checker_accepts_the_folder_and_needs_every_ignore() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--warn-unused-ignores",
            str(REFUSED),
            str(KEPT),
        ],
        cwd=FOLDER.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    assert [line for line in lines if "tests/typing" in line] == []
