"""The checker of documented errors and costs: the package holds, each gap is seen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scripts import script

CHECKER = script("check-public-error-docs")
GOOD = {
    "sum": "Adds.\n\nRaises:\n    ShapeError, DTypeError: no.\n\nCost: one.\n",
    "mean": "Averages; see `sum` for errors.\n\nCost: one allocation.\n",
    "fft.ifft": "The inverse.\n\nCost: as `fft`.\n",
    "fft.fft": "Raises:\n    IndexRangeError: no.\n\nCost: one allocation.\n",
    "Handle.sum": "`ta.sum` of this tensor.\n",
    "grad": "Raises (when called):\n    NotScalarError, NoRuleError.\n\nCost: two.\n",
    "hessian": "Raises (when called): as `grad`.\n\nCost: two.\n",
    "close": "Ends. Raises nothing. Cost: constant.\n",
    "at": "One. Raises KeyError, ShapeError or DTypeError. Cost: constant.\n",
}


def test_every_public_callable_says_what_it_raises_and_costs(capsys: Any) -> None:
    assert CHECKER.main([]) == 0
    assert "say what they raise and cost" in capsys.readouterr().out


@pytest.mark.clause("g6-public-error-docs")
def test_what_is_published_is_looked_at() -> None:
    names = set(CHECKER.published())
    assert {"mean", "linalg.svd", "nn.linear", "optim.SGD.update"} <= names
    assert {"Tensor.as_view", "TensorView.get", "EagerTensor.into_value"} <= names
    assert "storage.PreparedContiguousRead.as_slice" in names
    assert not {name for name in names if "._" in name}


@pytest.mark.clause("g6-public-error-docs")
def test_a_text_may_refer_to_one_that_says_it() -> None:
    assert list(CHECKER.faults(GOOD)) == []


@pytest.mark.clause("g6-public-error-docs")
@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("sum", "Adds.\n\nCost: one allocation.\n", "E_RAISES: `sum`"),
        ("sum", "Adds.\n\nRaises:\n    ShapeError: no.\n", "E_COST: `sum`"),
        ("close", "Raises:\n    NoSuchError: no.\n\nCost: no.\n", "E_CLASS: `close`"),
        ("at", "One. Raises KeyError or NoSuchError. Cost: no.\n", "E_CLASS: `at`"),
        ("close", "Raises: something.\n\nCost: no.\n", "E_RAISES: `close`"),
        ("close", "Ends. See `nobody`.\n\nCost: no.\n", "E_RAISES: `close`"),
        ("close", "Raises nothing. Cost: as `nobody`.\n", "E_REFERENCE: `close`"),
        ("close", "Ends; see `close`.\n\nCost: no.\n", "E_RAISES: `close`"),
    ],
)
def test_each_gap_is_seen(name: str, text: str, fault: str) -> None:
    found = list(CHECKER.faults(GOOD | {name: text}))
    assert found[0].startswith(fault)
    assert {line.split("`")[1] for line in found} <= {name, "mean", "Handle.sum"}


@pytest.mark.clause("g6-public-error-docs")
def test_two_texts_that_refer_to_each_other_say_nothing() -> None:
    docs = {"a": "See `b`.\n\nCost: no.\n", "b": "See `a`.\n\nCost: no.\n"}
    assert [line.split(":")[0] for line in CHECKER.faults(docs)] == ["E_RAISES"] * 2
