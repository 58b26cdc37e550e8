"""docs/operations.md is what the operation table says, and the table tells the truth.

The page is generated again and compared. Then every entry is held to real runs by other
means than it was made with: retention by what a tape holds, allocations by what the
provider hands out, dtypes by running the row on operands of them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import TenferroError
from tenferro_ad.ops import OPS, Region
from tests.ops.samples import Row, Sample, as_tuple, handle, load
from tests.scripts import script

generator: Any = script("generate-operations")
ROWS = load()
FACTS: dict[str, Any] = {}


def facts(name: str) -> Any:
    if name not in FACTS:
        FACTS[name] = generator.facts_of(ROWS[name])
    return FACTS[name]


def recorded(row: Row, sample: Sample, positions: tuple[int, ...]) -> Any:
    operands = [handle(x) for x in sample.operands]
    leaves = [ta.variable(operands[i]) for i in positions]
    for i, leaf in zip(positions, leaves, strict=True):
        operands[i] = leaf
    with ta.Tape() as tape:
        outs = as_tuple(row.apply(sample, operands))
    return tape, leaves, outs


with_bodies = {name for name, op in OPS.items() if isinstance(op.kernel, Region)}
plain = pytest.mark.parametrize("name", [n for n in OPS if n not in with_bodies])


# ---- the page ------------------------------------------------------------------------


def test_the_page_is_the_one_that_is_generated() -> None:
    fix = "run `python3 scripts/generate-operations.py`"
    assert generator.PAGE.read_text(encoding="utf-8") == generator.page(), fix


def test_a_page_that_says_something_else_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "operations.md"
    monkeypatch.setattr(generator, "PAGE", page)
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    assert generator.main(["--check"]) == 1
    assert generator.main([]) == 0
    assert generator.main(["--check"]) == 0
    page.write_text(page.read_text(encoding="utf-8").replace("x: out", "x: x", 1))
    capsys.readouterr()
    assert generator.main(["--check"]) == 1
    assert "operations.md" in capsys.readouterr().out


RENDERED = """<!doctype html>
<section><h2>{title}<a class="headerlink">#</a></h2>
<table><tbody><tr class="row-even"><td><p><code class="docutils"><span
class="pre">{name}</span></code></p></td><td><p><code>x</code></p></td></tr></tbody>
</table></section>"""


@pytest.mark.clause("g6-operation-categories")
def test_categories_of_source_and_rendered_pages_are_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = generator.PAGE.read_text(encoding="utf-8")
    assert generator.differences(source) == []
    assert generator.main(["--categories", str(generator.PAGE)]) == 0
    # Findings: a row under another heading, a row that is gone, one that never was.
    moved = source.replace("| `add` |", "| `added` |", 1)
    assert generator.differences(moved) == [
        "Elementwise: `add` is missing",
        "Elementwise: `added` is no such row",
    ]
    # As the site shows it.
    assert generator.of_page(RENDERED.format(title="Elementwise", name="add")) == {
        "Elementwise": {"add"}
    }
    page = tmp_path / "operations.html"
    whole = "".join(
        RENDERED.format(title=title, name=name)
        for title, names in generator.of_table().items()
        for name in names
    )
    page.write_text(whole, encoding="utf-8")
    assert generator.main(["--categories", str(page)]) == 0
    page.write_text(whole.replace(">add<", ">sine<"), encoding="utf-8")
    capsys.readouterr()
    assert generator.main(["--categories", str(page)]) == 1
    said = capsys.readouterr().out
    assert "operations.html: Elementwise: `add` is missing" in said
    assert "`sine` is no such row" in said


def test_every_row_has_a_line_and_every_convention_stands_there() -> None:
    lines = generator.PAGE.read_text(encoding="utf-8").splitlines()
    named = [line.split("`")[1] for line in lines if line.startswith("| `")]
    conventions = {op.kink for op in OPS.values()} - {""}
    assert set(named) == set(OPS)
    assert len([n for n in named if n in OPS]) >= len(OPS)
    for text in conventions:
        assert any(line.endswith(f"| {text} |") for line in lines), text


# ---- entries against real runs -------------------------------------------------------


def held_names(row: Row, sample: Sample, i: int) -> set[str]:
    """What a tape keeps, by the names of the page."""
    tape, _, outs = recorded(row, sample, (i,))
    found = {k.value for k in tape.retained()}
    del outs
    return found


def named(row: Row, sample: Sample, i: int, names: tuple[str, ...]) -> set[str]:
    """The page's names as the tape says them: operands of a variadic row by place."""
    if not row.op.variadic:
        return set(names)
    n, arg = len(sample.operands), row.op.args[0]
    found = set()
    for name in names:
        if name == "itself":
            found.add(f"{arg}[{i}]")
        elif name == "the others":
            found |= {f"{arg}[{j}]" for j in range(n) if j != i}
        else:
            found.add(name)
    return found


@plain
def test_a_tape_keeps_what_the_page_says(name: str) -> None:
    row, fact = ROWS[name], facts(name)
    for sample, table in (
        (fact.sample, fact.keeps),
        (generator.typical(row, "complex128"), fact.keeps_complex or fact.keeps),
    ):
        if sample is None or not table:
            continue
        for i in generator.moving(row, sample):
            wanted = named(row, sample, i, table[row.argument(i)])
            assert held_names(row, sample, i) == wanted


@plain
def test_the_provider_hands_out_what_the_page_says(
    name: str, provider_calls: Any
) -> None:
    row, fact = ROWS[name], facts(name)
    operands = [handle(x) for x in fact.sample.operands]
    provider_calls.reset()
    with ta.ledger(detail=False) as ledger:
        outs = row.apply(fact.sample, operands)
    assert provider_calls.total == fact.fresh
    assert sum(ledger.copies.values()) == fact.copies
    del outs
    if fact.reverse is None:
        return
    positions = generator.moving(row, fact.sample)
    tape, leaves, outs = recorded(row, fact.sample, positions)
    rng = np.random.default_rng(0)
    seed = ta.asarray(np.asarray(rng.uniform(size=outs[0].shape), outs[0].dtype))
    provider_calls.reset()
    with ta.ledger(detail=False) as ledger:
        grads = tape.backward(outs[0], cotangent=seed)
    assert provider_calls.total == fact.reverse
    assert ledger.copies == {}
    del grads, leaves, outs


@plain
@pytest.mark.filterwarnings("ignore:.*in cast", "ignore:Casting complex")
def test_a_row_runs_on_the_dtypes_of_the_page_and_refuses_others(name: str) -> None:
    row, fact = ROWS[name], facts(name)
    positions = generator.main_operands(fact.sample)
    if not positions:
        return
    for kind, dtypes in generator.KINDS.items():
        for dtype in dtypes:
            arrays = list(fact.sample.operands)
            for i in positions:
                x = arrays[i] if dtype[0] in "fc" else np.abs(arrays[i])
                arrays[i] = x.astype(dtype)
            made = replace(
                fact.sample,
                operands=tuple(arrays),
                params=generator.with_dtype(fact.sample, dtype),
            )
            operands = [handle(x) for x in arrays]
            if kind in fact.dtypes:
                row.apply(made, operands)
            elif not generator.takes_dtype(row, fact.sample, dtype):
                with pytest.raises(TenferroError):
                    row.apply(made, operands)


def test_a_wrong_entry_would_be_seen() -> None:
    """What the comparisons above compare with is not what they are made from."""
    fact = facts("exp")
    assert fact.keeps == {"x": ("out",)}
    assert generator.line_of(fact) != generator.line_of(
        replace(fact, keeps={"x": ("x",)})
    )
    assert held_names(ROWS["exp"], fact.sample, 0) == {"out"}
    assert held_names(ROWS["mul"], facts("mul").sample, 0) == {"y"}
