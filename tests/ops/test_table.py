"""Properties of every row of the operation table, over the samples beside this file.

Values are checked against NumPy and SciPy, first derivatives against differences of
those, reverse mode against forward mode, second derivatives against each other and
against differences of gradients; retention, allocations and ownership against what the
samples say by hand. A row without samples fails. The checks are those of
`ta.testing.check_op`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.engine import HANDLES
from tenferro_ad.ops import OPS
from tenferro_ad.testing import _derivatives, _modes, _retained
from tenferro_ad.testing._agree import ProviderCalls, is_double
from tenferro_ad.testing._retained import recorded
from tests.ops.samples import Row, at, handle, load, numpy_of

ROWS = load()

every_row = pytest.mark.parametrize("name", list(OPS))


def row_of(name: str) -> Row:
    if name not in ROWS:
        pytest.fail(f"row `{name}` has no samples (tests/ops/samples_*.py)", False)
    return ROWS[name]


def test_samples_cover_what_they_should() -> None:
    """Each row has samples; a differentiable one in float64 among them."""
    for name, row in ROWS.items():
        assert row.samples, name
        assert len({s.label for s in row.samples}) == len(row.samples), name
        if row.keeps:
            assert any(is_double(row, s) for s in row.differentiable()), name


# ---- values and derivatives ----------------------------------------------------------


@every_row
def test_value_shape_and_dtype(name: str) -> None:
    _derivatives.check_values(row_of(name))


@every_row
def test_forward_mode_against_differences(name: str) -> None:
    _derivatives.check_forward(row_of(name))


@every_row
def test_reverse_mode_is_the_adjoint_of_forward_mode(name: str) -> None:
    _derivatives.check_adjoint(row_of(name))


@every_row
def test_second_derivatives(name: str) -> None:
    _derivatives.check_second(row_of(name))


@every_row
def test_a_checkpoint_changes_no_bit(name: str) -> None:
    _modes.check_checkpoint(row_of(name))


# ---- retention and memory ------------------------------------------------------------


@every_row
def test_a_tape_keeps_what_the_rules_name_and_nothing_else(name: str) -> None:
    _retained.check_retention(row_of(name))


@every_row
def test_every_kept_value_is_read(name: str) -> None:
    _retained.check_kept_is_read(row_of(name))


@every_row
def test_allocations_and_copies(name: str, provider_calls: ProviderCalls) -> None:
    _retained.check_allocations(row_of(name), provider_calls)


@every_row
def test_backward_allocates_what_its_ledger_says(
    name: str, provider_calls: ProviderCalls
) -> None:
    _retained.check_backward_allocations(row_of(name), provider_calls)


@every_row
def test_gradients_own_their_buffers(name: str) -> None:
    _retained.check_ownership(row_of(name))


@every_row
def test_operands_outputs_and_cotangents_are_not_written(name: str) -> None:
    _retained.check_operands(row_of(name))
    _retained.check_nothing_written(row_of(name))
    _retained.check_forward_writes_nothing(row_of(name))


# ---- what has no derivative ----------------------------------------------------------


def test_integers_and_booleans_are_never_recorded() -> None:
    """Whatever comes in, an integer or boolean result carries no derivative."""
    for name, row in ROWS.items():
        for sample in row.samples:
            floating = [x.dtype.kind in "fc" for x in sample.operands]
            if any(y.dtype.kind in "fc" for y in row.expected(sample)):
                continue
            with at(name, sample):
                tracked = tuple(i for i, real in enumerate(floating) if real)
                tape, leaves, outs = recorded(row, sample, tracked)
                assert not any(y.is_tracked for y in outs)
                assert tape.retained() == []
                del leaves, outs


def test_stop_gradient_is_a_constant() -> None:
    for sample in ROWS["stop_gradient"].samples:
        if sample.operands[0].dtype.kind not in "fc":
            continue
        x: Any = ta.variable(handle(sample.operands[0]))
        out, pull = ta.vjp(HANDLES.stop_gradient, x)
        (g,) = pull(out)
        assert not np.any(numpy_of(g))
        _, t = ta.jvp(HANDLES.stop_gradient, (x,), (out,))
        assert not np.any(numpy_of(t))
