"""Device forms of random numbers: Philox in 32-bit integers, the same bits everywhere.

One invocation computes a block of four words and what they are converted to. Normal
numbers take the widest floating dtype of the lane, as the host takes double precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ._expr import Expr, call, select
from ._form import Form, Index, Kernel, Nest, cast, node
from ._philox import MULTIPLIERS, ROUNDS, WEYL

_WORD = np.dtype(np.uint32)
_LONG = np.dtype(np.uint64)
Words = tuple[Expr, Expr, Expr, Expr]


def _mulhi(a: int, b: Expr) -> Expr:
    """The upper word of a product."""
    return node("mulhi", [cast(a, _WORD), b])


def _rounds(counter: Words, key: tuple[Expr, Expr]) -> Words:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        first, second = call("mul", c0, MULTIPLIERS[0]), call("mul", c2, MULTIPLIERS[1])
        high, other = _mulhi(MULTIPLIERS[0], c0), _mulhi(MULTIPLIERS[1], c2)
        c0 = _xor(_xor(other, c1), k0)
        c2 = _xor(_xor(high, c3), k1)
        c1, c3 = second, first
        k0, k1 = call("add", k0, WEYL[0]), call("add", k1, WEYL[1])
    return c0, c1, c2, c3


def _xor(a: Expr, b: Expr) -> Expr:
    return call("bitwise_xor", a, b)


def philox(k: Kernel, c: Any) -> None:
    (key, counter), (out,) = k.ins, k.outs
    n, index = k.nest(*out.shape[:-1])
    own = index[: len(key.shape) - 1]
    words = tuple(counter.at(*index, j) for j in range(4))
    found = _rounds(words, (key.at(*own, 0), key.at(*own, 1)))  # type: ignore[arg-type]
    for j, word in enumerate(found):
        n.store(out, (*index, j), word)


# ---- elements from blocks ------------------------------------------------------------

# `convert(k, n, call, words)` gives the elements of a block.
Convert = Callable[[Kernel, Nest, Any, Words], list[Expr]]


def drawing(convert: Convert) -> Form:
    """A value for each key, in row-major order of its elements."""

    def form(k: Kernel, c: Any) -> None:
        (key,), (out,) = k.ins, k.outs
        size = math.prod(c.shape)
        each = _each(c)
        lead = key.shape[:-1]
        n, (*own, block) = k.nest(*lead, -(-size // each))
        domain = c.domain if "domain" in c.op.params else 0
        number = cast(block, _WORD)
        zero = cast(0, _WORD)
        counter = (number, zero, zero, cast(n.number(domain, _WORD), _WORD))
        words = _rounds(counter, (key.at(*own, 0), key.at(*own, 1)))
        for j, value in enumerate(convert(k, n, c, words)):
            at = block * each + j
            places = _unravelled(n, at, c.shape)
            fits = at < n.size(size)
            n.store(out, (*own, *places), cast(value, out.dtype), where=fits)

    return form


def _each(c: Any) -> int:
    """Elements of a block: four of up to 32 bits or two of 64 bits."""
    if c.op.name == "random_integers":
        return 2
    return 2 if c.dtype.itemsize == 8 else 4


def _unravelled(n: Nest, at: Expr, shape: tuple[int, ...]) -> list[Index]:
    """Indices from a position in row-major order."""
    found: list[Index] = []
    for size in reversed(shape[1:]):
        limit = n.size(size)
        found.append(node("imod", [at, limit]))
        at = node("idiv", [at, limit])
    return [at, *reversed(found)] if shape else []


def _pairs(words: Words) -> list[tuple[Expr, Expr]]:
    return [(words[0], words[1]), (words[2], words[3])]


def _joined(low: Expr, high: Expr) -> Expr:
    """64 bits of two words."""
    shifted = call("left_shift", cast(high, _LONG), 32)
    return call("bitwise_or", cast(low, _LONG), shifted)


def _shifted(word: Expr, by: int) -> Expr:
    return call("right_shift", word, by)


def bits(k: Kernel, n: Nest, c: Any, words: Words) -> list[Expr]:
    if c.dtype == _WORD:
        return list(words)
    return [_joined(a, b) for a, b in _pairs(words)]


def uniform(k: Kernel, n: Nest, c: Any, words: Words) -> list[Expr]:
    single = np.dtype(np.float32)
    match c.dtype.itemsize:
        case 2:
            return [cast(_shifted(w, 21), single) * 2.0**-11 for w in words]
        case 4:
            return [cast(_shifted(w, 8), single) * 2.0**-24 for w in words]
    return [_unit(a, b) for a, b in _pairs(words)]


def _unit(low: Expr, high: Expr) -> Expr:
    """53 bits as a multiple of their spacing below 1; both summands are exact."""
    double = np.dtype(np.float64)
    return cast(high, double) * 2.0**-32 + cast(_shifted(low, 11), double) * 2.0**-53


def normal(k: Kernel, n: Nest, c: Any, words: Words) -> list[Expr]:
    """Pairs by Box and Muller: sqrt(-2 log(1 - u)) at the angle 2 pi v."""
    wide = k.wide
    if c.dtype.itemsize == 8:
        (u, v) = uniform(k, n, c, words)
        return _polar(call("log1p", -u), v)
    if wide.itemsize == 8:
        units = [cast(w, wide) * 2.0**-32 for w in words]
        found = []
        for u, v in (units[:2], units[2:]):
            found += _polar(call("log1p", -u), v)
        return found
    found = []
    for a, b in _pairs(words):
        # In single precision u may round to 1: count from the other end there.
        u = cast(a, wide) * 2.0**-32
        left = (cast(call("bitwise_invert", a), wide) + 1.0) * 2.0**-32
        log = select(call("less", u, 0.5), call("log1p", -u), call("log", left))
        found += _polar(log, cast(b, wide) * 2.0**-32)
    return found


def _polar(log: Expr, v: Expr) -> list[Expr]:
    radius, angle = call("sqrt", log * -2.0), v * (2 * math.pi)
    return [radius * call("cos", angle), radius * call("sin", angle)]


def integers(k: Kernel, n: Nest, c: Any, words: Words) -> list[Expr]:
    """64 random bits modulo the number of choices."""
    choices = c.high - c.low
    if k.has_int64:
        count = n.number(choices, _LONG)
        low = n.number(c.low % 2**64, _LONG)
        found = []
        for a, b in _pairs(words):
            value = call("remainder", _joined(a, b), count)
            found.append(call("add", value, low))
        return found
    low = n.number(c.low % 2**32, _WORD)
    rests = []
    for a, b in _pairs(words):
        if choices == 2**32:
            rests.append(a)
        else:
            rests.append(node("mod64", [b, a, n.number(choices, _WORD)]))
    return [call("add", r, low) for r in rests]


# ---- counts --------------------------------------------------------------------------


def quantile(name: str) -> Form:
    """A function of the library, in the widest floating dtype of the lane."""

    def form(k: Kernel, c: Any) -> None:
        (out,) = k.outs
        n, index = k.nest(*out.shape)
        values = []
        for x in k.ins:
            own = index[len(index) - len(x.shape) :]
            at = [0 if m == 1 else i for m, i in zip(x.shape, own, strict=True)]
            values.append(cast(x.at(*at), k.wide))
        n.store(out, index, cast(node(name, values), out.dtype))

    return form
