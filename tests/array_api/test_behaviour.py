"""The array API standard 2025.12: what its functions give.

The reference is `array-api-strict`, which refuses what the standard leaves open; there
we are free, elsewhere value, shape and dtype are equal. Elementwise functions are
called with every dtype and every pair of dtypes, Python numbers on either side,
broadcasting shapes and special values.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest

import tenferro_ad as ta
from tests.array_api.calls import BINARY, CALLS, DTYPES, SHAPES, SPECIAL, UNARY, numbers
from tests.array_api.test_namespace import names

# Answers of the peer that are not the standard's.
NOT_SAID = {
    # It divides by |x|, which is NaN at infinities; NumPy and we give the direction.
    ("sign", "complex64"),
    ("sign", "complex128"),
}
# Of real numbers only; the peer lets a complex Python number pass.
REAL = (
    "atan2 copysign floor_divide greater greater_equal hypot less less_equal logaddexp "
    "maximum minimum nextafter remainder < <= > >="
).split()
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
TensorOfPeer = type(strict.asarray(0.0))
# Not of the standard: what the peer's answer would be is left open.
OPEN = (TypeError, ValueError, RuntimeError, IndexError)


def plain(x: Any) -> Any:
    """A result as NumPy arrays, Python values and lists of them."""
    if isinstance(x, ta.EagerTensor):
        return np.array(x.numpy())
    if isinstance(x, TensorOfPeer):
        return np.asarray(x._array)
    if isinstance(x, tuple | list):
        return [plain(y) for y in x]
    return x


def same(seen: Any, wanted: Any) -> None:
    """Equal in structure, shape, dtype; in value up to rounding, zeros with sign."""
    if isinstance(wanted, list):
        assert len(seen) == len(wanted)
        for a, b in zip(seen, wanted, strict=True):
            same(a, b)
    elif isinstance(wanted, np.ndarray):
        assert seen.shape == wanted.shape
        assert seen.dtype == wanted.dtype
        if wanted.dtype.kind in "fc":
            near = 2e-5 if wanted.dtype.char in "fF" else 1e-11
            np.testing.assert_allclose(seen, wanted, near, near)
            zero = (wanted == 0) & (seen == 0)
            assert np.array_equal(signs(seen[zero]), signs(wanted[zero]))
        else:
            assert np.array_equal(seen, wanted)
    else:
        assert seen == wanted


def signs(x: Any) -> Any:
    parts = [x.real, x.imag] if x.dtype.kind == "c" else [x]
    return np.array([np.signbit(p) for p in parts])


def compare(call: Callable[[Any], Any]) -> bool:
    """Whether the standard says what this call gives; if so ours gives the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = plain(call(strict))
        except OPEN:
            return False
        same(plain(call(ta)), wanted)
    return True


def noted(call: Callable[[Any], Any], text: str) -> bool:
    try:
        return compare(call)
    except Exception as error:
        error.add_note(text)
        raise


# ---- elementwise ---------------------------------------------------------------------


@pytest.mark.parametrize("name", UNARY)
def test_an_elementwise_function_of_one_argument(name: str) -> None:
    said = 0
    for dtype in DTYPES:
        points = [numbers((3, 4), dtype), numbers((), dtype), numbers((0, 2), dtype)]
        if np.dtype(dtype).kind in "fc" and (name, dtype) not in NOT_SAID:
            points.append(np.array(SPECIAL, dtype))
        for x in points:
            said += noted(
                lambda xp, x=x: getattr(xp, name)(xp.asarray(x)), f"{dtype} {x!r}"
            )
    assert said


@pytest.mark.parametrize("name", BINARY)
def test_an_elementwise_function_of_two_arguments(name: str) -> None:
    """Every pair of dtypes that the standard promotes, and broadcasting."""
    said = 0
    for a in DTYPES:
        for b in DTYPES:
            for left, right in SHAPES if a == b else SHAPES[1:2]:
                x, y = numbers(left, a), numbers(right, b, 1)
                said += noted(
                    lambda xp, x=x, y=y: getattr(xp, name)(
                        xp.asarray(x), xp.asarray(y)
                    ),
                    f"{a} {left}, {b} {right}",
                )
    assert said >= len(SHAPES)


@pytest.mark.parametrize("name", BINARY)
def test_an_elementwise_function_of_an_array_and_a_number(name: str) -> None:
    """Python numbers are weak: the array's dtype is the result's."""
    said = 0
    for dtype in DTYPES:
        x = numbers((2, 3), dtype)
        for number in (True, 2, 0.5, *([] if name in REAL else [1 + 0.5j])):
            for call in (
                lambda xp, x=x, n=number: getattr(xp, name)(xp.asarray(x), n),
                lambda xp, x=x, n=number: getattr(xp, name)(n, xp.asarray(x)),
            ):
                said += noted(call, f"{dtype}, {number}")
    assert said


@pytest.mark.parametrize("name", BINARY)
def test_special_values_of_two_arguments(name: str) -> None:
    for dtype in ("float32", "float64"):
        x = np.array(SPECIAL, dtype)
        noted(
            lambda xp, x=x: getattr(xp, name)(xp.asarray(x[:, None]), xp.asarray(x)),
            dtype,
        )


# ---- everything else -----------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
def test_a_function(name: str) -> None:
    said = [noted(call, f"call {k}") for k, call in enumerate(CALLS[name])]
    assert any(said)


def test_every_function_is_called() -> None:
    functions = {
        name
        for name, theirs, _ in names()
        if callable(theirs) and not isinstance(theirs, ModuleType)
    }
    assert functions - {*CALLS, *UNARY, *BINARY} == set()
    assert {*CALLS, *UNARY, *BINARY} - functions == set()


# ---- operators and indexing ----------------------------------------------------------


def operators() -> Iterator[tuple[str, Callable[[Any, Any], Any]]]:
    binary = "+ - * / // % ** & | ^ << >> < <= > >= == !=".split()
    for symbol in binary:
        yield symbol, eval(f"lambda x, y: x {symbol} y")
    yield "@", lambda x, y: x @ y


@pytest.mark.parametrize(("symbol", "apply"), list(operators()))
def test_an_operator_is_its_function(
    symbol: str, apply: Callable[[Any, Any], Any]
) -> None:
    said = 0
    for a in DTYPES:
        x = numbers((3, 3), a)
        for b in DTYPES:
            y = numbers((3, 3), b, 1)
            said += noted(
                lambda xp, x=x, y=y: apply(xp.asarray(x), xp.asarray(y)), f"{a}, {b}"
            )
        for n in (True, 2, 0.5, *([] if symbol in REAL else [1j])):
            said += noted(lambda xp, x=x, n=n: apply(xp.asarray(x), n), f"{a}, {n}")
            said += noted(lambda xp, x=x, n=n: apply(n, xp.asarray(x)), f"{n}, {a}")
    assert said


@pytest.mark.parametrize(
    "apply",
    [
        lambda x: -x,
        lambda x: +x,
        abs,
        lambda x: ~x,
        lambda x: x.mT,
        lambda x: x.T,
        lambda x: (x.shape, x.ndim, x.size),
        lambda x: bool(x[0, 0]),
        lambda x: float(x[0, 0]),
        lambda x: complex(x[0, 0]),
        lambda x: int(x[0, 0]),
        lambda x: [1, 2, 3, 4, 5, 6][x[0, 0]],
        lambda x: x[0, ...],
        lambda x: x[-1, 1],
        lambda x: x[1:, ::-1],
        lambda x: x[..., 0],
        lambda x: x[None, ..., None],
        lambda x: x[:, 2:],
        lambda x: x[x == x],
        lambda x: x[x != x],
        lambda x: x[x[:, 0] == x[0, 0]],
    ],
)
def test_the_array_object(apply: Callable[[Any], Any]) -> None:
    found = [
        noted(lambda xp, d=d: apply(xp.asarray(numbers((3, 2), d))), d) for d in DTYPES
    ]
    assert any(found)


def test_where_the_peer_says_too_little() -> None:
    """Its `isin` ignores `invert`, its `repeat` and casts are narrower than NumPy's."""
    x = ta.asarray([[3, 1, 2], [1, 1, 0]])
    found = ta.isin(x, ta.asarray([1, 3]), invert=True)
    assert found.tolist() == [[False, False, True], [False, False, True]]
    assert np.asarray(ta.sign(ta.asarray([-np.inf + 0j]))) == [-1]
