"""Write docs/operations.md: what each operation keeps, allocates, takes and follows.

    python3 scripts/generate-operations.py            # write the page
    python3 scripts/generate-operations.py --check    # only say whether it would change

The page is made of the operation table itself: retention from the reverse rules,
allocations from kernels and from one run of each rule, dtypes from the shape rules,
lanes from what backends say they support, conventions from the rows. The points are the
suite's samples (`tests/ops/samples_*.py`); `tests/test_operations_page.py` generates
the page again and holds every entry to real runs.
"""

from __future__ import annotations

import argparse
import html
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import tenferro_ad as ta  # noqa: E402
from tenferro_ad._aval import aval_of  # noqa: E402
from tenferro_ad.backends import CPU, printing  # noqa: E402
from tenferro_ad.backends.fake import FakeProvider  # noqa: E402
from tenferro_ad.errors import NoRuleError, TenferroError  # noqa: E402
from tenferro_ad.ops import (  # noqa: E402
    OPS,
    Elementwise,
    Library,
    Move,
    Op,
    Region,
    View,
    Write,
)
from tenferro_ad.runtime import plan_of  # noqa: E402
from tests.ops.samples import Row, Sample, as_tuple, handle, load  # noqa: E402

PAGE = ROOT / "docs" / "operations.md"
# Names of dtypes by kind, in the order of the page; halves and wider floats apart.
KINDS = {
    "bool": ("bool",),
    "int": ("int8", "int32", "int64"),
    "uint": ("uint8", "uint32", "uint64"),
    "half": ("float16",),
    "float": ("float32", "float64"),
    "complex": ("complex64", "complex128"),
}
# Lanes whose kernels are printed: class and what a device has beyond the least.
PRINTERS = {
    "opencl": ("OpenCLPrinter", frozenset({"f64"})),
    "webgpu": ("WgslPrinter", frozenset({"f16", "f64", "i64"})),
    "cuda": ("CudaPrinter", frozenset({"f64"})),
}

EVERY_LANE = ("cpu", "fake", *PRINTERS)


@dataclass
class Facts:
    """One line of the page.

    Attributes:
        keeps: for each differentiable argument, what its reverse rule keeps.
        keeps_complex: the same for complex arguments, where it differs.
        fresh, copies: allocations and explicit duplicates of one application.
        reverse: allocations of its reverse rule, all arguments tracked.
    """

    op: Op
    sample: Sample
    keeps: dict[str, tuple[str, ...]] = field(default_factory=dict)
    keeps_complex: dict[str, tuple[str, ...]] = field(default_factory=dict)
    fresh: int = 0
    copies: int = 0
    reverse: int | None = None
    dtypes: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()


# ---- the typical application ---------------------------------------------------------


def is_of(sample: Sample, *dtypes: str) -> bool:
    floats = [x.dtype.name for x in sample.operands if x.dtype.kind in "fc"]
    return bool(floats) and all(name in dtypes for name in floats)


def typical(row: Row, *dtypes: str) -> Sample | None:
    """Of the samples of these dtypes with elements and something to differentiate, the
    first one with the most operands."""
    found = [
        sample
        for sample in row.samples
        if is_of(sample, *dtypes)
        and all(x.size for x in sample.operands)
        and moving(row, sample)
        and any(y.dtype.kind in "fc" for y in row.expected(sample))
    ]
    return max(found, key=lambda sample: len(sample.operands), default=None)


def moving(row: Row, sample: Sample) -> tuple[int, ...]:
    """Operands to differentiate: those of the sample, or where a sample moves none,
    because its operands belong together, those that have a rule of their own."""
    if row.op.stops:
        return ()
    found = row.tracked(sample)
    if found or row.op.variadic:
        return found
    return tuple(
        i
        for i, (x, arg) in enumerate(zip(sample.operands, row.op.args, strict=True))
        if x.dtype.kind in "fc" and has_rule(row.op, arg)
    )


def has_rule(op: Op, arg: str) -> bool:
    rule = op.vjp.get(arg)
    return rule is not None and rule.__name__ not in ("no_derivative", "nothing")


def call_of(row: Row, sample: Sample) -> Any:
    avals = tuple(handle(x).aval for x in sample.operands)
    return plan_of(row.op, avals, sample.params).call


# ---- facts ---------------------------------------------------------------------------


def facts_of(row: Row) -> Facts:
    real = typical(row, "float64") or typical(row, "float64", "complex128")
    found = Facts(row.op, real or row.samples[0])
    if real is not None:
        found.keeps = kept(row, real)
        found.reverse = reversed_allocations(row, real)
    other = typical(row, "complex128")
    if other is not None and real is not None and kept(row, other) != found.keeps:
        found.keeps_complex = kept(row, other)
    found.fresh, found.copies = forward(row, found.sample)
    found.dtypes = tuple(name for name in KINDS if takes(row, found.sample, name))
    if not found.dtypes and found.sample.operands:
        found.dtypes = (found.sample.operands[0].dtype.name,)
    found.lanes = tuple(lanes(row, found.sample))
    return found


def kept(row: Row, sample: Sample) -> dict[str, tuple[str, ...]]:
    """Names that the reverse rule of each argument keeps; by the rules themselves."""
    op, call = row.op, call_of(row, sample)
    found = {}
    for i in moving(row, sample):
        arg = row.argument(i)
        if arg in found:
            continue
        try:
            found[arg] = names_kept(op, call, i)
        except NoRuleError:
            continue
    return found


def names_kept(op: Op, call: Any, i: int) -> tuple[str, ...]:
    names = []
    if op.recorded is not None:
        op, params = op.recorded(call, 1 << i)
        call = plan_of(op, call.ins, params).call
    for s in call.spec(1 << i).saves:
        if s < 0:
            name = op.outs[0] if op.many_outs else op.outs[~s]
        elif op.variadic:
            name = "itself" if s == i else "the others"
        else:
            name = op.args[s]
        names.append(name)
    return tuple(dict.fromkeys(names))


def forward(row: Row, sample: Sample) -> tuple[int, int]:
    operands = [handle(x) for x in sample.operands]
    with ta.ledger(detail=False) as ledger:
        row.apply(sample, operands)
    return sum(ledger.allocations.values()), sum(ledger.copies.values())


def reversed_allocations(row: Row, sample: Sample) -> int | None:
    """Of one reverse sweep over one application with a given cotangent."""
    operands = [handle(x) for x in sample.operands]
    leaves = {i: ta.variable(operands[i]) for i in moving(row, sample)}
    for i, leaf in leaves.items():
        operands[i] = leaf
    try:
        with ta.Tape() as tape:
            outs = as_tuple(row.apply(sample, operands))
        seed = ta.asarray(np.ones(outs[0].shape, outs[0].dtype))
        with ta.ledger(detail=False) as ledger:
            grads = tape.backward(outs[0], cotangent=seed)
    except NoRuleError:
        return None
    del grads
    return int(sum(ledger.allocations.values()))


def main_operands(sample: Sample) -> tuple[int, ...]:
    """Operands whose dtype is the one that may vary: the floating ones, or those of the
    first one's dtype."""
    floats = [i for i, x in enumerate(sample.operands) if x.dtype.kind in "fc"]
    if floats or not sample.operands:
        return tuple(floats)
    first = sample.operands[0].dtype
    return tuple(i for i, x in enumerate(sample.operands) if x.dtype == first)


def takes(row: Row, sample: Sample, kind: str) -> bool:
    """Whether the shape rule takes the operands in every dtype of the kind."""
    return all(takes_dtype(row, sample, name) for name in KINDS[kind])


def takes_dtype(row: Row, sample: Sample, name: str) -> bool:
    moving = main_operands(sample)
    if not moving:
        return False
    avals = [handle(x).aval for x in sample.operands]
    for i in moving:
        avals[i] = aval_of(avals[i].shape, np.dtype(name), CPU)
    try:
        row.op.infer(
            *((tuple(avals),) if row.op.variadic else avals), *with_dtype(sample, name)
        )
    except TenferroError:
        return False
    return True


def with_dtype(sample: Sample, name: str) -> tuple[Any, ...]:
    """The parameters, those that repeat the dtype of the operands in another one."""
    old = sample.operands[main_operands(sample)[0]].dtype
    return tuple(
        np.dtype(name) if isinstance(p, np.dtype) and p == old else p
        for p in sample.params
    )


def lanes(row: Row, sample: Sample) -> Iterator[str]:
    if isinstance(row.op.kernel, View | Region | Move):
        yield "every"  # descriptors, bodies of other operations, transfers
        return
    yield "cpu"
    if FakeProvider(auto=True).supports(row.op, [x.dtype for x in sample.operands]):
        yield "fake"
    for lane, (name, features) in PRINTERS.items():
        printer = getattr(printing, name, None)
        if printer is not None and printer(features).supports(call_of(row, sample)):
            yield lane


# ---- the page ------------------------------------------------------------------------

HEAD = """\
# Operations

Every public function is made of these rows of the operation table; printing
`ta.trace(f, *specs)` shows which. This page is generated from the table: `python3
scripts/generate-operations.py`.

**Keeps**: what a tape retains so that the reverse rule of an argument can run, for each
argument that has one: names of arguments and outputs, or nothing (`-`). Only tracked
arguments count: a product with a constant keeps the constant alone. Rows without an
entry have no derivative: their results are counts, places, booleans or constants.

**Forward** and **reverse**: allocations of one application and of its reverse sweep
with a given cotangent, each an `OperationOutput`, where all arguments are tracked and
of one shape. Views allocate nothing. Gradients own their buffers, so a rule that passes
its cotangent on allocates one for the leaf. Only `duplicate` and moves between devices
make copies. What rows with bodies (`scan`, `cond`, `while_loop`) keep and allocate
follows from their bodies.

**Dtypes**: what the row takes for its floating arguments (for others where it has
none). `half` is `float16`; `bfloat16` does not exist here. Integers may be given to
most functions of real numbers and give `float64`.

**Lanes**: devices that have a kernel; `every` is cpu, fake, opencl, webgpu and cuda.
What a lane lacks is an `UnsupportedError`, never a fallback.
"""

KINK_HEAD = """\
## Conventions at kinks

Where a function has no derivative, its slope is a convention.

| rows | slope |
|---|---|
"""

GROUPS = {
    "Elementwise": Elementwise,
    "Views": View,
    "Library calls that give fresh results": Library,
    "Kernels that write their outputs": Write,
    "Others": object,
}


def page() -> str:
    rows = load()
    lines = [HEAD]
    left = [facts_of(rows[name]) for name in OPS]
    for title, kind in GROUPS.items():
        group = [f for f in left if isinstance(f.op.kernel, kind)]
        left = [f for f in left if f not in group]
        if group:
            lines += [f"## {title}\n", TABLE_HEAD, *map(line_of, group), ""]
    return "\n".join(lines) + "\n" + KINK_HEAD + "\n".join(kinks()) + "\n"


TABLE_HEAD = """\
| operation | arguments | keeps | forward | reverse | dtypes | lanes |
|---|---|---|---|---|---|---|"""


def line_of(f: Facts) -> str:
    args = ", ".join(f.op.args) + (", ..." if f.op.variadic else "")
    cells = [
        f"`{f.op.name}`",
        f"`{args}`" if args else "",
        keeps_text(f),
        forward_text(f),
        "" if f.reverse is None else "by body" if by_body(f) else str(f.reverse),
        " ".join(f.dtypes) or "by parameter",
        "every" if f.lanes == EVERY_LANE else " ".join(f.lanes),
    ]
    return f"| {' | '.join(cells)} |"


def by_body(f: Facts) -> bool:
    return isinstance(f.op.kernel, Region)


def forward_text(f: Facts) -> str:
    if by_body(f):
        return "by body"
    return "a copy" if f.copies else str(f.fresh) if f.fresh else "view"


def keeps_text(f: Facts) -> str:
    def said(table: dict[str, tuple[str, ...]]) -> str:
        return "; ".join(
            f"{arg}: {', '.join(names) or '-'}" for arg, names in table.items()
        )

    if by_body(f):
        return "by body" if f.keeps else ""
    more = f" (complex: {said(f.keeps_complex)})" if f.keeps_complex else ""
    return said(f.keeps) + more


def kinks() -> Iterator[str]:
    by_text: dict[str, list[str]] = {}
    for op in OPS.values():
        if op.kink:
            by_text.setdefault(op.kink, []).append(op.name)
    for text, names in by_text.items():
        yield f"| {', '.join(f'`{n}`' for n in names)} | {text} |"


# ---- categories in pages -------------------------------------------------------------


def of_table() -> dict[str, set[str]]:
    """Rows of each category, from the operation table."""
    found: dict[str, set[str]] = {}
    for op in OPS.values():
        title = next(t for t, kind in GROUPS.items() if isinstance(op.kernel, kind))
        found.setdefault(title, set()).add(op.name)
    return found


def of_page(text: str) -> dict[str, set[str]]:
    """Rows of each category, from the page's source or from its rendered form."""
    if text.lstrip().startswith("<"):
        title, row = (
            r"<h2>(.*?)<",
            r"<tr[^>]*>\s*<td[^>]*>\s*(?:<p>)?<code[^>]*>(.*?)</code>",
        )
    else:
        title, row = r"^## ([^\n]*)$", r"^\| `([^`]*)` \|"
    found: dict[str, set[str]] = {}
    category = ""
    for match in re.finditer(f"(?:{title})|(?:{row})", text, re.MULTILINE | re.DOTALL):
        if match[1] is not None:
            category = match[1].strip()
        elif category in GROUPS:
            name = html.unescape(re.sub(r"<[^>]*>", "", match[2]))
            found.setdefault(category, set()).add(name)
    return found


def differences(text: str) -> list[str]:
    """What a page says of categories that the table does not, and the other way."""
    table, page = of_table(), of_page(text)
    found = []
    for title in sorted(table | page):
        mine, theirs = table.get(title, set()), page.get(title, set())
        found += [f"{title}: `{name}` is missing" for name in sorted(mine - theirs)]
        found += [f"{title}: `{name}` is no such row" for name in sorted(theirs - mine)]
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument(
        "--categories",
        type=Path,
        metavar="PAGE",
        help="compare the categories of a source or rendered page with the table",
    )
    options = parser.parse_args(argv)
    if options.categories is not None:
        wrong = differences(options.categories.read_text(encoding="utf-8"))
        print("".join(f"{options.categories.name}: {line}\n" for line in wrong), end="")
        return 1 if wrong else 0
    text = page()
    if options.check:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        if not same:
            print(f"{PAGE.relative_to(ROOT)} is not what the operation table says")
        return 0 if same else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
