"""`ta.vmap` of every public function that takes one to three tensors: the values of a
loop, or a refusal because the shape of its result depends on values."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import errors

RNG = np.random.default_rng(5)
_A = RNG.uniform(0.2, 0.8, (4, 3, 3))
MATRICES = _A + _A.swapaxes(1, 2) + 2 * np.eye(3)
VECTORS = np.sort(RNG.uniform(0.1, 0.9, (4, 3)))
INTEGERS = np.sort(RNG.integers(0, 3, (4, 3)))
A, V, I = MATRICES, VECTORS, INTEGERS  # noqa: E741
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "A": (A,),
    "V": (V,),
    "I": (I,),
    "AA": (A, A),
    "AV": (A, V),
    "VV": (V, V),
    "VI": (V, I),
    "II": (I, I),
    "AAA": (A, A, A),
    "VVV": (V, V, V),
}
# The shape of the result, or what the function checks, depends on values.
BY_VALUE = {"argwhere", "nonzero", "unique_all", "unique_counts", "unique_inverse"}
BY_VALUE |= {"unique_values"}
# The same, where a second tensor is what they check.
CHECKED = {"quantile", "repeat"}
MODULES: dict[str, ModuleType] = {
    "ta": ta,
    "linalg": ta.linalg,
    "special": ta.special,
    "fft": ta.fft,
    "nn": ta.nn,
}


def functions(module: ModuleType) -> list[tuple[str, Any]]:
    found = [(n, getattr(module, n)) for n in module.__all__]
    return [(n, f) for n, f in found if callable(f) and not inspect.isclass(f)]


def tensors_of(result: Any) -> list[Any] | None:
    """The outputs, or None where they are not tensors."""
    outs = list(result) if isinstance(result, tuple) else [result]
    return outs if all(isinstance(y, ta.EagerTensor) for y in outs) else None


@pytest.mark.parametrize("which", ARGUMENTS)
@pytest.mark.parametrize("module", MODULES)
def test_public_functions(module: str, which: str) -> None:
    stacks = ARGUMENTS[which]
    compared = 0
    for name, f in functions(MODULES[module]):
        with np.errstate(all="ignore"):
            try:
                wanted = [
                    tensors_of(f(*[ta.asarray(a[k]) for a in stacks])) for k in (0, 3)
                ]
            except Exception:  # not a function of such arguments
                continue
            if None in wanted:
                continue
            if name in BY_VALUE or (name in CHECKED and len(stacks) > 1):
                with pytest.raises(errors.TracedConversionError):
                    ta.vmap(f)(*stacks)
                continue
            found = tensors_of(ta.vmap(f)(*stacks))
        for y, first, last in zip(found, *wanted, strict=True):
            for k, one in ((0, first), (3, last)):
                close = np.allclose(
                    np.asarray(y)[k], np.asarray(one), 1e-9, 1e-12, equal_nan=True
                )
                assert close, name
        compared += 1
    assert compared > 0 or module != "ta"
