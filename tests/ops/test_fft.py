"""Fourier transforms: NumPy's values for every name, JAX's derivatives, counts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import errors, fft

jax.config.update("jax_enable_x64", True)

RNG = np.random.default_rng(11)
NORMS = ("backward", "ortho", "forward")
ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = ("fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2")
OF_REALS = ("rfft", "ihfft", "rfftn", "rfft2")


def sample(shape: tuple[int, ...], real: bool) -> Any:
    x = RNG.normal(size=shape)
    return x if real else x + 1j * RNG.normal(size=shape)


def close(seen: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    seen, wanted = np.asarray(seen), np.asarray(wanted)
    assert seen.shape == wanted.shape
    assert seen.dtype == wanted.dtype
    np.testing.assert_allclose(seen, wanted, tolerance, tolerance)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ONE)
def test_one_axis(name: str, norm: Any) -> None:
    ours, theirs = getattr(fft, name), getattr(np.fft, name)
    for shape, axis in [((3, 6), -1), ((5, 2), 0)]:
        x = sample(shape, name in OF_REALS)
        for n in (None, 1, 2, 5, 6, 9):
            close(ours(x, n=n, axis=axis, norm=norm), theirs(x, n, axis, norm))
        if name in ("fft", "ifft"):
            close(ours(x.real, axis=axis, norm=norm), theirs(x.real, None, axis, norm))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", MANY)
def test_several_axes(name: str, norm: Any) -> None:
    ours, theirs = getattr(fft, name), getattr(np.fft, name)
    x = sample((3, 4, 5), name in OF_REALS)
    close(ours(x, norm=norm), theirs(x, norm=norm))
    for s, axes in [(None, (0, 2)), ((2, 7), (2, 0)), ((6, 3), (-1, 1))]:
        close(ours(x, s=s, axes=axes, norm=norm), theirs(x, s, axes, norm))
    if not name.endswith("2"):
        close(ours(x, s=(3, 8), norm=norm), theirs(x, (3, 8), (-2, -1), norm))


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision_stays(dtype: Any) -> None:
    x = sample((4, 6), dtype is np.float32).astype(dtype)
    assert fft.fft(x).dtype == np.complex64
    assert fft.irfft(x).dtype == np.float32
    close(fft.fft(x), np.fft.fft(x), 1e-5)


@pytest.mark.parametrize("n", [None, 3, 6, 9])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_derivatives_are_jaxs(name: str, n: int | None) -> None:
    x = sample((2, 6), name in OF_REALS)

    def energy(fn: Any, xp: Any, v: Any) -> Any:
        y = fn(v, n=n, norm="ortho")
        return xp.sum(xp.square(xp.abs(y)) * xp.sin(xp.abs(y)))

    grad = ta.grad(lambda v: energy(getattr(fft, name), ta, v))(ta.variable(x))
    wanted = jax.grad(lambda v: energy(getattr(jnp.fft, name), jnp, v))(x)
    close(grad, jnp.conj(wanted), 1e-9)
    t = sample(x.shape, name in OF_REALS)
    _, pushed = ta.jvp(lambda v: getattr(fft, name)(v, n=n), (x,), (t,))
    _, wanted = jax.jvp(lambda v: getattr(jnp.fft, name)(v, n=n), (x,), (t,))
    close(pushed, wanted, 1e-10)


def test_ignored_imaginary_parts_have_slope_zero() -> None:
    x = ta.variable(sample((4,), False))
    grad = np.asarray(ta.grad(lambda v: ta.sum(ta.square(fft.irfft(v))))(x))
    assert grad[0].imag == 0
    assert abs(grad[-1].imag) < 1e-15


def test_inverses_and_empty_batches() -> None:
    x = sample((3, 8), False)
    close(fft.ifftn(fft.fftn(x)), x)
    close(fft.irfft(fft.rfft(x.real)), x.real)
    close(fft.hfft(fft.ihfft(x.real)), x.real)
    assert fft.rfft(np.zeros((0, 6))).shape == (0, 4)
    assert fft.irfft(np.zeros((0, 4))).shape == (0, 6)
    close(fft.fftn(x.real, axes=()), x.real.astype(np.complex128))


def test_frequencies_and_shifts() -> None:
    for n in (1, 4, 7):
        close(fft.fftfreq(n, d=0.5), np.fft.fftfreq(n, 0.5))
        close(fft.rfftfreq(n, d=0.5), np.fft.rfftfreq(n, 0.5))
        assert fft.fftfreq(n, dtype=ta.float32).dtype == np.float32
        x = RNG.normal(size=(n, 3))
        for axes in (None, 0, (1,), (-1, 0)):
            close(fft.fftshift(x, axes=axes), np.fft.fftshift(x, axes))
            close(fft.ifftshift(x, axes=axes), np.fft.ifftshift(x, axes))


def test_refusals() -> None:
    x = np.ones((2, 3))
    with pytest.raises(errors.IndexRangeError, match="axis 2"):
        fft.fft(x, axis=2)
    with pytest.raises(errors.InvalidArgumentError, match="norm"):
        fft.fft(x, norm="other")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="from 1 on"):
        fft.fft(x, n=0)
    with pytest.raises(errors.InvalidArgumentError, match="once"):
        fft.fftn(x, axes=(0, -2))
    with pytest.raises(errors.InvalidArgumentError, match="some axis"):
        fft.rfftn(x, axes=())
    with pytest.raises(errors.InvalidArgumentError, match="2 lengths"):
        fft.fftn(x, s=(3,), axes=(0, 1))
    with pytest.raises(errors.DTypeError, match="rfft"):
        fft.rfft(x + 1j)
    with pytest.raises(errors.DTypeError, match="fftfreq"):
        fft.fftfreq(4, dtype=np.int64)


def test_allocations() -> None:
    """One for a transform, one more for padding, none for cutting; nothing is kept."""
    x = ta.variable(np.ones((4, 6)))
    for n, count in [(None, 1), (5, 1), (9, 2)]:
        with ta.Tape() as tape, ta.ledger(detail=False) as ledger:
            y = fft.rfft(x, n=n)
        assert sum(ledger.allocations.values()) == count
        assert ledger.copies == {}
        assert tape.retained() == []
        del y
