"""Samples of contractions over named axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .samples import Drawer, Sample, row
from .samples_arrays import ANY, C8, C16, F4, F8, I4, I8

Shape = tuple[int, ...]
LEFT = ((0, 1), (0, 1))  # three operands, from the left


# ---- two operands --------------------------------------------------------------------
def _contract(
    x: Any, y: Any, equation: str, conj_x: bool, conj_y: bool, dtype: Any
) -> Any:
    x, y = np.conj(x) if conj_x else x, np.conj(y) if conj_y else y
    wide = np.result_type(x, y, dtype)
    found = np.einsum(equation, x.astype(wide), y.astype(wide))
    # Difference quotients come in double precision.
    return found if found.dtype.char in "dD" else found.astype(dtype)


def pairs() -> None:
    draws = Drawer("contract", ANY)
    found: list[Sample] = []

    def add(equation: str, a: Shape, b: Shape, *kinds: Any, bars: str = "") -> None:
        one, two = kinds or (F8, F8)
        dtype = np.result_type(one, two)
        x, y = draws(a, one), draws(b, two)
        params = (equation, "x" in bars, "y" in bars, dtype)
        label = f"{equation} {a} {b} {dtype} {np.dtype(one)} {bars}"
        found.append(Sample(label, (x, y), params))

    add("ab,bc->ac", (2, 3), (3, 4))
    add("ba,cb->ca", (3, 2), (4, 3))
    add("abc,cbd->da", (2, 3, 2), (2, 3, 2))  # the summed axes do not merge
    add("abc,bd->acd", (2, 3, 2), (3, 4))  # neither do the rows
    add("abc,acd->abd", (4, 2, 3), (4, 3, 2))  # stacks
    add("bca,cda->dba", (2, 3, 4), (3, 2, 4))  # shared axes last
    add("ab,ab->", (2, 3), (2, 3))
    add("ab,ab->a", (2, 3), (2, 3))
    add("a,b->ba", (2,), (3,))
    add("ab,b->ab", (2, 3), (3,))
    add(",->", (), ())
    add("ab,->ba", (2, 3), ())
    add("ab,bc->ac", (2, 0), (0, 3))
    add("ab,bc->ac", (0, 2), (2, 3))
    add("ab,bc->ac", (1, 3), (3, 1))
    add("ab,bc->ac", (2, 3), (3, 2), F4, F4)
    add("ab,bc->ac", (2, 3), (3, 2), F4, F8)
    add("ab,bc->ca", (2, 3), (3, 2), I8, I8)
    add("ab,bc->ca", (2, 3), (3, 2), I4, F8)
    for bars in ("", "x", "y", "xy"):
        add("abc,cb->a", (2, 3, 2), (2, 3), C16, C16, bars=bars)
    add("ab,bc->ca", (2, 3), (3, 2), C8, C8, bars="y")
    add("ab,ab->ab", (2, 3), (2, 3), C16, C16, bars="x")
    add("ab,bc->ac", (2, 3), (3, 2), C16, F8, bars="x")
    add("ab,bc->ac", (2, 3), (3, 2), F8, C16)
    plain = (False, False, np.dtype(F8))
    one, two = draws.flipped((4, 3)), draws.transposed((3, 2))
    found.append(Sample("views", (one, two), ("ab,bc->ca", *plain)))
    one, two = draws.repeated((2, 3)), draws.flipped((2, 3))
    found.append(Sample("stride 0", (one, two), ("ab,ab->b", *plain)))
    row("contract", _contract, found, keeps={"x": "y", "y": "x"})


pairs()


# ---- any number of operands ----------------------------------------------------------
def _einsum(*args: Any) -> Any:
    *xs, equation, _ = args
    terms, _, out = equation.partition("->")
    once = "".join(dict.fromkeys(out))
    found = np.einsum(f"{terms}->{once}", *xs)
    if once == out:  # NumPy has no repeated labels in outputs
        return found
    wide = np.zeros([found.shape[once.index(c)] for c in out], found.dtype)
    for index in np.ndindex(found.shape):
        wide[tuple(index[once.index(c)] for c in out)] = found[index]
    return wide


def _all_but_the_only_one(sample: Sample, tracked: tuple[int, ...]) -> set[str]:
    """An operand is not multiplied with itself."""
    return {f"xs[{k}]" for k in range(len(sample.operands)) if tracked != (k,)}


def sums() -> None:
    draws = Drawer("einsum", ANY)
    found: list[Sample] = []

    def add(equation: str, *shapes: Shape, kinds: Any = F8, path: Any = None) -> None:
        n = len(shapes)
        kinds = kinds if isinstance(kinds, tuple) else (kinds,) * n
        path = path or ((0, 1),) * (n - 1)
        xs = tuple(draws(s, k) for s, k in zip(shapes, kinds, strict=True))
        names = " ".join(np.dtype(k).str[1:] for k in kinds)
        label = f"{equation} {names} {path} {shapes[0]}"
        found.append(Sample(label, xs, (equation, path)))

    for kind in (F8, C16):  # one operand
        add("ab->ba", (2, 3), kinds=kind)
        add("ab->a", (2, 3), kinds=kind)
        add("aa->", (3, 3), kinds=kind)
        add("aa->a", (3, 3), kinds=kind)
        add("aab->b", (3, 3, 2), kinds=kind)
        add("abca->ca", (2, 3, 2, 2), kinds=kind)
        add("ab->bab", (2, 3), kinds=kind)
    add("aaa->a", (2, 2, 2))
    add("a->aaa", (3,))
    add("->", ())
    add("ab->b", (0, 3))
    for kind in (F8, F4, C16, I8):  # several
        add("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2), kinds=kind)
    add("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2), path=((1, 2), (0, 1)))
    add("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2), path=((0, 1, 2),))
    add("ab,bc->ac", (2, 3), (3, 4))
    add("aba,bc->ac", (2, 3, 2), (3, 4))
    add("abc,cd,e->bd", (2, 3, 2), (2, 3), (4,))  # sums of single operands
    add("ab,b,b,b->a", (2, 3), (3,), (3,), (3,), path=((1, 2), (1, 2), (0, 1)))
    add("a,b,c->cab", (2,), (3,), (2,))
    add("a,ab,b->", (2,), (2, 3), (3,), kinds=C16)
    add("ab,bc,c->aca", (2, 3), (3, 4), (4,))
    add("ab,b->aab", (2, 3), (3,))
    add("ab,ac,ad->abcd", (2, 3), (2, 2), (2, 3))  # one axis in three operands
    add("ab,bc->ac", (2, 1), (3, 4))  # lengths 1 broadcast
    add("aab,abc,cc->", (1, 1, 2), (3, 2, 4), (4, 4))
    add("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2), kinds=(F8, C16, F4))
    add("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2), kinds=(I4, F4, F4))
    add("ab,bc,cd->ad", (2, 0), (0, 3), (3, 2))
    views = (draws.flipped((2, 3)), draws.transposed((3, 4)), draws.repeated((4, 2)))
    found.append(Sample("views", views, ("ab,bc,cd->da", LEFT)))
    row("einsum", _einsum, found, keeps={"xs": ""}, kept=_all_but_the_only_one)


sums()
