"""The documented kinks, in both modes. The table is `tests/reference/kinks.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.ops import OPS
from tests.reference.kinks import KINKS, SHOWN, Kink, point_of, slope_of

each_kink = pytest.mark.parametrize("kink", KINKS, ids=lambda kink: kink.name)


def total(kink: Kink) -> Any:
    return lambda x: ta.sum(kink.function(ta, x))


@each_kink
def test_reverse_mode(kink: Kink) -> None:
    g = ta.grad(total(kink))(ta.asarray(point_of(kink)))
    np.testing.assert_allclose(np.asarray(g), slope_of(kink), rtol=1e-12, atol=0)


# A tangent of zero times an infinite slope is NaN in forward mode.
FINITE = [k for k in KINKS if np.isfinite(slope_of(k)).all()]


@pytest.mark.parametrize("kink", FINITE, ids=lambda kink: kink.name)
def test_forward_mode(kink: Kink) -> None:
    """Along each axis apart: a slope of 0 is 0 whatever the others are."""
    x = point_of(kink)
    for i, wanted in enumerate(slope_of(kink)):
        for part in [1, 1j] if x.dtype.kind == "c" else [1]:
            t = np.zeros_like(x)
            t[i] = part
            _, pushed = ta.jvp(total(kink), (ta.asarray(x),), (ta.asarray(t),))
            seen = (np.conj(wanted) * part).real
            np.testing.assert_allclose(np.asarray(pushed), seen, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["where with a root", "where with a division"])
def test_without_strong_zeros_a_select_lets_nan_through(name: str) -> None:
    """What the default protects from, and that it can be switched off."""
    (kink,) = [k for k in KINKS if k.name == name]
    g = ta.grad(total(kink), strong_zero=False)(ta.asarray(point_of(kink)))
    assert np.isnan(np.asarray(g)).any()


def test_windows_share_ties() -> None:
    """The largest elements of a pooling window share the slope equally."""
    x = np.array([[[[1.0, 2.0, 2.0, 0.0]]]])
    g = ta.grad(lambda v: ta.sum(ta.max_pool2d(v, (1, 4))))(ta.asarray(x))
    assert np.asarray(g).tolist() == [[[[0.0, 0.5, 0.5, 0.0]]]]


def test_places_share_ties() -> None:
    x, at = ta.asarray([1.0, 3.0]), ta.asarray([0, 0, 1])
    source = ta.asarray([1.0, 0.0, 3.0])
    f = lambda x, s: ta.sum(ta.scatter(x, at, s, reduce="max"))
    gx, gs = ta.grad(f, (0, 1))(x, source)
    assert np.asarray(gx).tolist() == [0.5, 0.5]
    assert np.asarray(gs).tolist() == [0.5, 0.0, 0.5]


def test_places_multiply_their_others() -> None:
    f = lambda x: ta.sum(ta.segment_prod(x, [0, 0, 1], num_segments=2))
    assert np.asarray(ta.grad(f)(np.array([0.0, 5.0, 0.0]))).tolist() == [5.0, 0.0, 1.0]


def test_a_floored_quotient_is_locally_constant() -> None:
    f = lambda x, y: ta.sum(ta.floor_divide(x, y))
    for x, y in ((4.0, 2.0), (4.5, 2.0)):
        assert [g.item() for g in ta.grad(f, (0, 1))(np.array(x), np.array(y))] == [
            0,
            0,
        ]


def test_the_next_number_follows_its_neighbour() -> None:
    f = lambda x, y: ta.sum(ta.nextafter(x, y))
    for x, y in ((1.0, 2.0), (1.0, 1.0), (0.0, -1.0)):
        assert [g.item() for g in ta.grad(f, (0, 1))(np.array(x), np.array(y))] == [
            1,
            0,
        ]


def test_a_hinge_has_slope_zero() -> None:
    g = ta.grad(lambda x: ta.sum(ta.relu(x)))(np.array([-1.0, 0.0, 2.0]))
    assert np.asarray(g).tolist() == [0.0, 0.0, 1.0]


def test_every_convention_of_a_row_is_shown_at_a_point() -> None:
    declared = {name for name, op in OPS.items() if op.kink}
    assert declared == {k.row for k in KINKS} | set(SHOWN)
    for place in SHOWN.values():
        file, name = place.split("::")
        text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
        assert f"def {name}(" in text


def test_the_table_says_each_thing_once() -> None:
    assert len({k.name for k in KINKS}) == len(KINKS)
    assert all(len(k.point) == len(k.slope) for k in KINKS)
