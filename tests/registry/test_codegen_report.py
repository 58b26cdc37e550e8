"""The verifier of the machine code report: each fault is seen."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.scripts import script

VERIFIER = script("check-static-rank-codegen")
SOURCE = "__kernel void k(const double *x0, double *y0) { y0[i] = x0[i] * x0[i]; }"
CODE = "\n".join(
    [
        "push %rbx",
        "lea (%rcx,%rsi,1),%ebx",
        "movslq %ebx,%rbx",
        "vmovsd (%r10,%rbx,8),%xmm0",
        "vmulsd %xmm0,%xmm0,%xmm0",
        "vmovsd %xmm0,(%r8,%rbx,8)",
        "cmp %ebx,%eax",
        "jg *",
        "ret",
    ]
)
REPORT: dict[str, Any] = {
    "schema": VERIFIER.SCHEMA,
    "path": VERIFIER.REPORT,
    "commit": "some",
    "environment": {"machine": "x86_64", "system": "Linux", "compiler": "PoCL"},
    "rank": VERIFIER.RANK,
    "source": SOURCE,
    "group": 64,
    "code": {"printed": CODE, "reference": CODE.replace("%xmm0", "%xmm7")},
}


def codes(report: Any, source: str = SOURCE) -> set[str]:
    return {line.partition(":")[0] for line in VERIFIER.faults(report, source)}


@pytest.mark.clause("g4-codegen")
def test_the_tracked_report_is_about_what_is_printed_today(capsys: Any) -> None:
    assert VERIFIER.main([]) == 0
    assert "plain loop over arrays" in capsys.readouterr().out


def test_a_report_that_holds() -> None:
    assert codes(REPORT) == set()
    renamed = "typedef int ix;\n" + SOURCE.replace("void k", "void another")
    assert codes(REPORT, renamed) == set()


@pytest.mark.clause("g4-codegen")
@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (("schema",), "other", "E_SCHEMA"),
        (("path",), "elsewhere.json", "E_PATH"),
        (("rank",), 0, "E_RANK"),
        (("environment", "compiler"), "", "E_ENVIRONMENT"),
        (("source",), SOURCE.replace("x0[i] * x0[i]", "x0[i]"), "E_SOURCE"),
        (("code", "printed"), "", "E_CODE"),
        (("code", "reference"), None, "E_CODE"),
        (("code", "reference"), CODE.replace("vmulsd", "vaddsd"), "E_REFERENCE"),
        (("code", "reference"), CODE + "\nret", "E_REFERENCE"),
    ],
)
def test_each_fault_is_seen(path: tuple[str, ...], value: Any, code: str) -> None:
    changed = copy.deepcopy(REPORT)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert codes(changed) == {code}


@pytest.mark.clause("g4-codegen")
@pytest.mark.parametrize(
    "line", ["call *", "callq resolve", "vdivsd %xmm0,%xmm1,%xmm2", "lock cmpxchg", ""]
)
def test_nothing_else_may_happen_in_the_code(line: str) -> None:
    both = dict.fromkeys(("printed", "reference"), f"{CODE}\n{line}")
    assert codes(REPORT | {"code": both}) == {"E_INSTRUCTION"}


@pytest.mark.clause("g4-codegen")
@pytest.mark.parametrize(
    ("mnemonic", "other"), [("vmulsd", "nop"), ("vmovsd", "nop"), ("jg", "nop")]
)
def test_a_loop_loads_computes_stores_and_ends(mnemonic: str, other: str) -> None:
    lines = [
        other
        if line.split()[0] in {mnemonic, "cmp", "movslq"}
        or (mnemonic == "vmovsd" and "mov" in line)
        else line
        for line in CODE.split("\n")
    ]
    both = dict.fromkeys(("printed", "reference"), "\n".join(lines))
    assert "E_CODE" in codes(REPORT | {"code": both})


@pytest.mark.clause("g4-codegen")
@pytest.mark.parametrize("word", VERIFIER.STORAGE)
def test_the_source_speaks_of_no_storage(word: str) -> None:
    source = f"{SOURCE} // {word}"
    assert codes(REPORT | {"source": source}, source) == {"E_STORAGE"}


def test_something_else_is_no_report() -> None:
    assert codes([1]) == {"E_SCHEMA"}
    assert list(VERIFIER.provenance({"commit": None})) == [
        "E_COMMIT: no commit is named"
    ]
