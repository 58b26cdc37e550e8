"""`check_grads`: what passes, what fails, and what a failure says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.engine import HANDLES as F
from tenferro_ad.errors import DTypeError, IntegerInputError, InvalidArgumentError
from tenferro_ad.testing import GradientCheckError, check_grads

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def sample(shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(7)
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return np.asarray(x, dtype)


@pytest.mark.no_leaks
@pytest.mark.parametrize("dtype", DTYPES)
def test_sin_passes_in_every_precision(dtype: Any) -> None:
    # Field report: float32 checks that fail by noise.
    check_grads(lambda x: F.sin(x), [sample((5, 4), dtype)], order=2)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_steps_follow_the_size_of_the_point(scale: float) -> None:
    check_grads(lambda x: x * x, [scale * sample((6,))])


def test_functions_of_pytrees_with_several_outputs_pass() -> None:
    def f(params: Any, x: Any) -> Any:
        h = ta.tanh(x @ params["w"]) * params["b"]
        return {"h": h, "total": ta.sum(h)}

    params = {"w": sample((4, 3)), "b": sample((3,))}
    check_grads(f, [params, sample((2, 4))])


@pytest.mark.parametrize("modes", [["fwd"], ["rev"], ["rev", "fwd"]])
def test_third_order_and_single_modes(modes: list[str]) -> None:
    check_grads(lambda x: ta.exp(F.sin(x)), [0.3], order=3, modes=modes)


def broken_at(index: tuple[int, ...]) -> Any:
    """sin, except that one element's derivative is lost."""
    mask = np.zeros((3, 4))
    mask[index] = 1.0

    def f(x: Any) -> Any:
        return F.sin(x) * (1.0 - mask) + F.sin(ta.stop_gradient(x)) * mask

    return f


@pytest.mark.parametrize("mode", ["fwd", "rev"])
@pytest.mark.parametrize("index", [(0, 0), (1, 2), (2, 3)])
def test_a_failure_names_argument_index_numbers_and_tolerance(
    mode: str, index: tuple[int, ...]
) -> None:
    with pytest.raises(GradientCheckError) as caught:
        check_grads(broken_at(index), [sample((3, 4))], order=1, modes=[mode])
    error = caught.value
    assert isinstance(error, AssertionError)
    assert error.index == index
    assert error.argument == ("output 0" if mode == "fwd" else "args[0]")
    assert error.seen == 0
    assert abs(error.expected) > 1e-2
    assert 0 < error.tolerance < 1e-6
    for part in (str(index), "central difference", f"{error.expected:.9g}", "allowed"):
        assert part in str(error)


def test_the_argument_at_fault_is_named_by_its_path() -> None:
    def f(params: Any, x: Any) -> Any:
        return params["good"] * x + ta.stop_gradient(params["bad"]) * x

    params = {"bad": sample((2,)), "good": sample((2,))}
    with pytest.raises(GradientCheckError) as caught:
        check_grads(f, [params, sample((2,))], modes=["rev"])
    assert caught.value.argument == "args[0]['bad']"


def test_a_fault_of_the_second_derivative_names_its_order() -> None:
    def f(x: Any) -> Any:
        # The value and first derivative of x**2 at x, and no second derivative.
        c = ta.stop_gradient(x)
        return c * c + 2.0 * c * (x - c)

    check_grads(f, [sample((3,))], order=1, modes=["fwd"], eps=1e-4, rtol=1e9)
    with pytest.raises(GradientCheckError):
        check_grads(f, [sample((3,))], order=2)


def test_a_function_that_is_not_deterministic_is_named_as_such() -> None:
    calls = iter(range(1, 100))
    with pytest.raises(
        GradientCheckError, match="second call gives 2 and first call 1"
    ):
        check_grads(lambda x: x * float(next(calls)), [np.ones(3)])


def test_nan_never_passes() -> None:
    with pytest.raises(GradientCheckError, match="nan"):
        check_grads(lambda x: ta.sqrt(x), [np.array([0.0])], order=1)


def test_infinities_are_compared_without_warnings() -> None:
    huge = np.array([1e308])
    with pytest.raises(GradientCheckError, match="inf|nan"):
        check_grads(lambda x: x * 10.0, [huge], order=1)


def test_integers_are_refused_by_name_unless_they_are_left_out() -> None:
    with pytest.raises(IntegerInputError, match=r"args\[1\].*int64"):
        check_grads(lambda x, n: x, [1.0, np.arange(3)])
    check_grads(lambda x, n: x * x, [1.0, np.arange(3)], argnums=0)
    with pytest.raises(DTypeError, match="output 0"):
        check_grads(lambda x: x > 0.0, [1.0])


@pytest.mark.parametrize(
    "options",
    [{"modes": ["both"]}, {"modes": []}, {"argnums": 2}, {"argnums": ()}],
)
def test_wrong_options_are_typed_errors(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        check_grads(lambda x: x, [1.0], **options)


def test_the_same_seed_gives_the_same_check() -> None:
    texts = []
    for _ in range(2):
        with pytest.raises(GradientCheckError) as caught:
            check_grads(broken_at((1, 1)), [sample((3, 4))], seed=3)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
