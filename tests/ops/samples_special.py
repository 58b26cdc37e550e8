"""Samples of the rows of special functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special

from .samples import Draw, Drawer, Sample, between, row
from .samples_elementwise import ANY, F4, F8, I8, POSITIVE, binary, doubled, unary

INSIDE = between(0.15, 0.85)


def one(name: str, keeps: str, real: Draw, ints: tuple[int, int] | None) -> None:
    reference = doubled(getattr(scipy.special, name))
    unary(name, reference, keeps, real, ints=ints)


one("erfinv", "out", between(-0.8, 0.8), (0, 1))
one("erfcinv", "out", between(0.3, 1.7), (1, 2))
one("erfcx", "out x", ANY, (-1, 5))
one("dawsn", "out x", ANY, (-4, 5))
one("ndtr", "x", ANY, (-4, 5))
one("ndtri", "out", INSIDE, None)
one("log_ndtr", "x", between(-3, 3), (-4, 5))
one("digamma", "x", POSITIVE, (1, 9))
one("gammaln", "x", POSITIVE, (1, 9))
one("gamma", "out x", POSITIVE, (1, 6))
one("j0", "x", between(-4, 4), (-4, 5))
one("j1", "x", between(-4, 4), (-4, 5))
one("i0", "x", ANY, (-4, 5))
one("i1", "x", ANY, (-4, 5))
one("i0e", "out x", ANY, (1, 5))
one("i1e", "out x", ANY, (1, 5))
one("entr", "x", POSITIVE, (1, 5))
one("logit", "x", INSIDE, None)
one("log_expit", "x", ANY, (-4, 5))


def two(name: str, keeps: tuple[str, str], first: Draw, second: Draw) -> None:
    binary(name, doubled(getattr(scipy.special, name)), keeps, first, second, ints=None)


two("betaln", ("x y", "x y"), POSITIVE, POSITIVE)
two("xlogy", ("y", "x y"), ANY, POSITIVE)
two("xlog1py", ("y", "x y"), ANY, POSITIVE)
two("rel_entr", ("x y", "x y"), POSITIVE, POSITIVE)
two("kl_div", ("x y", "x y"), POSITIVE, POSITIVE)


def of_order(name: str, orders: list[float], keeps: str, draw: Draw) -> None:
    """Functions with a derivative in the second argument only."""
    y = Drawer(name, draw)
    found = []
    for dtype in (F8, F4):
        label = np.dtype(dtype).name
        order: Any = np.asarray(orders, dtype)
        found += [
            Sample(label, (order, y((3, len(orders)), dtype))),
            Sample(f"{label} one order", (order[:1].reshape(()), y((2, 3), dtype))),
            Sample(f"{label} column", (order[:, None].copy(), y((4,), dtype))),
            Sample(f"{label} views", (order[::-1], y.flipped((3, len(orders)), dtype))),
        ]
    found.append(Sample("empty", (np.asarray(orders), y((0, len(orders))))))
    found.append(Sample("whole orders", (np.arange(2, 4, dtype=I8), y((3, 2)))))
    found.append(Sample("promoted", (np.asarray(orders, F4), y((len(orders),)))))
    reference = doubled(getattr(scipy.special, name))
    row(name, reference, found, keeps={"y": keeps})


of_order("zeta", [2.0, 3.5], "x y", POSITIVE)
of_order("gammainc", [0.7, 2.0], "x y", POSITIVE)
of_order("gammaincc", [0.7, 2.0], "x y", POSITIVE)
of_order("jv", [1.0, 2.0, 3.5], "x y", POSITIVE)
of_order("iv", [1.0, 2.0, 3.5], "x y", POSITIVE)
of_order("ive", [1.0, 2.0, 3.5], "out x y", POSITIVE)


# ---- inverses of incomplete functions ------------------------------------------------
of_order("gammaincinv", [0.7, 2.0], "out x", INSIDE)


def of_orders(name: str, keeps: str) -> None:
    """Functions of three arguments with a derivative in the last one only."""
    draw = Drawer(name, INSIDE)
    a, b = np.array([0.7, 2.0, 3.5]), np.array([1.5, 0.8, 2.0])
    found = [
        Sample("float64", (a, b, draw((4, 3)))),
        Sample("column", (a[:, None].copy(), b, draw((3, 3)))),
        Sample("views", (a[::-1], b[::-1], draw.flipped((2, 3)))),
        Sample("float32", (a.astype(F4), b.astype(F4), draw((3,), F4))),
        Sample("whole orders", (np.arange(1, 4, dtype=I8), b, draw((3,)))),
        Sample("empty", (a, b, draw((0, 3)))),
    ]
    reference = doubled(getattr(scipy.special, name))
    row(name, reference, found, keeps={"z": keeps})


of_orders("betainc", "x y z")
of_orders("betaincinv", "out x y")
