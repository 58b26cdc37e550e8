"""Every differentiable function of the array API has derivatives, in both modes.

The calls are those of `calls.py`, replayed with their double precision arrays as the
arguments to differentiate, and compared with differences of second order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import NoRuleError
from tenferro_ad.testing import check_grads
from tests.array_api.calls import BINARY, CALLS, UNARY, numbers

DOUBLE = ("float64", "complex128")
# No derivative: constants, positions, numbers that are counted or compared.
WITHOUT = {
    *"arange linspace eye full full_like zeros zeros_like ones ones_like".split(),
    *"empty empty_like can_cast result_type isdtype finfo iinfo".split(),
    *"broadcast_shapes __array_namespace_info__ all any argmax argmin argsort".split(),
    *"count_nonzero nonzero searchsorted isin linalg.matrix_rank".split(),
    *"fft.fftfreq fft.rfftfreq bitwise_and bitwise_invert bitwise_or".split(),
    *"bitwise_left_shift".split(),
    *"bitwise_right_shift bitwise_xor equal not_equal greater greater_equal".split(),
    *"less less_equal isfinite isinf isnan logical_and logical_not".split(),
    *"logical_or logical_xor signbit from_dlpack".split(),
}
# Complete bases are not determined by their matrix, so they have no derivative.
REFUSED = {"linalg.svd", "linalg.qr"}
# Eigenvectors turn fast where values are close: third derivatives limit a difference.
LOOSE = {"linalg.eigh": 1e-5}


class Recorded:
    """The namespace, with `asarray` of double precision arrays under our hand."""

    __name__ = "tenferro_ad"

    def __init__(self, replay: tuple[Any, ...] | None = None) -> None:
        self.points: list[np.ndarray[Any, Any]] = []
        self.replay = replay

    def asarray(self, x: Any, **options: Any) -> Any:
        moving = isinstance(x, np.ndarray) and x.dtype.name in DOUBLE and x.size
        if not moving or options:
            return ta.asarray(x, **options)
        self.points.append(x)
        if self.replay is None:
            return ta.asarray(x)
        return self.replay[len(self.points) - 1]

    def __getattr__(self, name: str) -> Any:
        return getattr(ta, name)


def outputs(found: Any) -> list[Any]:
    """Results that can carry a derivative."""
    many = found if isinstance(found, tuple | list) else (found,)
    return [y for y in many if isinstance(y, ta.EagerTensor) and y.dtype.name in DOUBLE]


def function(call: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *xs: outputs(call(Recorded(xs)))


def checked(call: Callable[[Any], Any], rtol: float | None = None) -> bool:
    """Whether the call has something to differentiate; its derivatives are right."""
    seen = Recorded()
    if not is_said(call) or not outputs(call(seen)) or not seen.points:
        return False
    check_grads(function(call), seen.points, order=1, rtol=rtol)
    return True


def is_said(call: Callable[[Any], Any]) -> bool:
    """Whether the standard defines it."""
    try:
        call(strict)
    except (TypeError, ValueError, RuntimeError, IndexError):
        return False
    return True


def elementwise(name: str) -> Iterator[Callable[[Any], Any]]:
    pairs = [numbers((2, 3), "float64", 1), numbers((3,), "float64", 2)]
    xs = [x + 1.2 if name == "acosh" else x for x in pairs]
    if name in UNARY:
        yield lambda xp: getattr(xp, name)(xp.asarray(xs[0]))
        yield lambda xp: getattr(xp, name)(xp.asarray(numbers((2, 3), "complex128")))
    else:
        yield lambda xp: getattr(xp, name)(xp.asarray(xs[0]), xp.asarray(xs[1]))
        yield lambda xp: getattr(xp, name)(
            xp.asarray(numbers((2, 3), "complex128")), xp.asarray(xs[1])
        )


@pytest.mark.parametrize("name", [n for n in (*UNARY, *BINARY) if n not in WITHOUT])
def test_an_elementwise_function_has_derivatives(name: str) -> None:
    said = [call for call in elementwise(name) if is_said(call)]
    assert said
    for call in said:
        assert checked(call)


@pytest.mark.parametrize("name", [n for n in CALLS if n not in WITHOUT])
def test_a_function_has_derivatives(name: str) -> None:
    found, refused = 0, 0
    for k, call in enumerate(CALLS[name]):
        try:
            found += checked(call, LOOSE.get(name))
        except NoRuleError:
            assert name in REFUSED
            refused += 1
        except Exception as error:
            error.add_note(f"call {k}")
            raise
    assert found
    assert bool(refused) == (name in REFUSED)


def test_a_function_without_derivatives_gives_nothing_to_differentiate() -> None:
    """Or a value that does not depend on its arguments."""
    for name in WITHOUT & set(CALLS):
        for call in filter(is_said, CALLS[name]):
            seen = Recorded()
            for y in outputs(call(seen)):
                assert not seen.points or name.endswith("_like"), (name, y)


def test_integers_do_not_spoil_what_is_differentiable() -> None:
    """Selections by values: the rest of the call is a constant."""
    x = np.array([[3.0, 1.0, 2.0], [1.0, 1.5, 0.5]])
    for call in (
        lambda x: ta.repeat(x, ta.asarray([1, 0, 2]), axis=1),
        lambda x: x[x > 1.2],
        lambda x: ta.sort(x, axis=0, descending=True),
        lambda x: ta.take(x, ta.argsort(x[0]), axis=1),
        lambda x: ta.diff(x, n=2, prepend=ta.asarray([[0.0], [1.0]])),
    ):
        check_grads(call, [x], order=2)


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda x: ta.repeat(x, ta.asarray([1, 2]), axis=1), ValueError, "2 counts"),
        (lambda x: ta.repeat(x, ta.asarray([1, -2, 1]), axis=1), ValueError, "(-2,)"),
        (lambda x: ta.repeat(x, 1.5), TypeError, "integer"),
        (lambda x: ta.diff(x, n=-1), ValueError, "-1"),
        (lambda x: ta.diff(x, axis=2), IndexError, "axis 2"),
        (lambda x: ta.diff(x > 0.0), TypeError, "booleans"),
        (lambda x: ta.nextafter(x, 1j), TypeError, "complex"),
        (lambda x: ta.broadcast_shapes((2,), (3,)), ValueError, "(2,) and (3,)"),
        (lambda x: ta.broadcast_shapes((-2,)), ValueError, "-2"),
    ],
)
def test_wrong_calls_are_typed_errors(wrong: Any, error: Any, text: str) -> None:
    with pytest.raises(error) as caught:
        wrong(ta.asarray(np.ones((2, 3))))
    assert isinstance(caught.value, ta.errors.TenferroError)
    assert text in str(caught.value)


def test_a_count_for_each_element_makes_no_transfer() -> None:
    x, counts = ta.variable([1.0, 2.0, 3.0]), ta.asarray([2, 0, 1])
    with ta.ledger() as led:
        y, pull = ta.vjp(lambda x: ta.repeat(x, counts), x)
        (g,) = pull(ta.ones(3))
    assert led.copies == {}
    assert y.tolist() == [1.0, 1.0, 3.0]
    assert g.tolist() == [2.0, 0.0, 1.0]
