"""`Tape` and the backward pass as users call it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, final

import numpy as np
import optree

from .._aval import mismatch
from .._ledger import STATE
from ..errors import (
    GradientError,
    InactiveTapeError,
    InvalidArgumentError,
    NotScalarError,
    TapeConsumedError,
    a_kind,
)
from ..ops import OPS, Program
from ..runtime import direct, shown
from ..storage import ValueRecord
from ..tape import Gradients, Leaf, Retained, TapeRecord, hold, sweep
from ._dispatch import (
    HANDLES,
    chain_of,
    enter_level,
    inside,
    leave_level,
    living,
    open_level,
)
from ._eager import EagerTensor, constant
from ._levels import ReverseLevel
from ._make import as_tensor
from ._mixed import MIXED

StrongZero = bool | Literal["auto"]


@final
class Tape:
    """Records operations on variables inside its `with` block.

    Used once: a backward pass consumes it unless `retain=True`. Dropping the tape gives
    everything back; values computed on it stay usable as constants.

        with ta.Tape() as tape:
            loss = ta.mean((x @ w - target) ** 2)
        grads = tape.backward(loss)

    Cost: entering sets one context variable; each recorded operation keeps what its
    rule declares (`saves`) and nothing else, without allocating or copying.
    """

    __slots__ = ("_core", "_level")

    def __init__(self) -> None:
        self._core = TapeRecord()
        self._level: ReverseLevel | None = None

    def __enter__(self) -> Tape:
        if self._core.consumed:
            raise _consumed("enter")
        state = STATE.get()
        if self._level is None:
            level = ReverseLevel(self._core, state.level, watches=True)
            level.closed, self._level = True, level
        elif self._level.outer is not state.level or not self._level.closed:
            raise InactiveTapeError(
                operation="Tape.__enter__",
                argument="self",
                found="a tape that began under other tapes, or is open already",
                fix="use one `with` block for a tape, or `tape.attach()` in a thread",
            )
        try:
            self._level.closed = False
            STATE.set(state.at(self._level))
            return self
        except BaseException:  # an interrupt: nobody will call `__exit__`
            self._level.closed = True
            STATE.set(state)
            raise

    def __exit__(self, *exc: object) -> None:
        self._end()

    def _end(self) -> None:
        # Blocks may be left in another order than they were entered (generators): this
        # tape ends wherever it stands, and is never the active one again by itself.
        level = self._level
        if level is None:
            return
        level.closed = True
        state = STATE.get()
        if state.level is level:
            STATE.set(state.at(open_level(level)))

    def __del__(self) -> None:
        if hasattr(self, "_level"):
            self._end()  # its block may have been left by an interrupt
            self._core.close()

    @contextmanager
    def attach(self) -> Iterator[Tape]:
        """Join this tape from another thread or task: `with tape.attach(): ...`.

        Joining threads must not record at the same time; the order of recording is the
        order of the program.

        Raises:
            InactiveTapeError: the tape is not recording.

        Cost: constant; no allocation, no copy.
        """
        if self._level is None or self._level.closed or self._core.live is None:
            raise InactiveTapeError(
                operation="attach",
                argument="self",
                found="a tape that is not recording",
                fix="attach inside the tape's `with` block",
            )
        before = STATE.get()
        try:
            enter_level(self._level)
            yield self
        finally:
            leave_level(before)

    def __len__(self) -> int:
        """Number of recorded nodes (leaves included)."""
        return len(self._core)

    def backward(
        self,
        loss: EagerTensor,
        *,
        cotangent: Any = None,
        retain: bool = False,
        strong_zero: StrongZero = "auto",
    ) -> Gradients:
        """Gradients of `loss` for every variable it depends on.

        Args:
            loss: a value of this tape; a real scalar unless `cotangent` is given.
            cotangent: weights of the same shape, dtype and device as `loss`.
            retain: keep the tape for further passes.
            strong_zero: see `ta.grad`.

        Raises:
            NotScalarError: not a real scalar, and no cotangent.
            InvalidArgumentError: another `strong_zero`.
            ShapeError, DTypeError, DeviceMismatchError: the cotangent does not fit.
            InactiveTapeError: `loss` is not a value of this tape.
            TapeConsumedError: the tape was used before.
            NoRuleError: an operation has no derivative; the tape is unchanged.

        Cost: one rule for each equation that `loss` depends on; fresh buffers are
            `OperationOutput`s; no copies. A failed pass changes nothing.
        """
        grads = backward_from(
            self._core, loss, cotangent, retain=retain, strong_zero=strong_zero
        )
        if self._core.live is None:
            self._end()  # inside its block: nothing is recorded from here on
        return grads

    def retain(self, y: EagerTensor) -> None:
        """Keep the value `y` until the tape ends, though no rule asked for it.

        Raises:
            GradientError: `y` is no eager tensor.

        Cost: one more holder of the record; no allocation, no copy.
        """
        if self._core.live is None:
            raise _consumed("retain")
        if not isinstance(y, EagerTensor):
            raise GradientError(
                operation="retain",
                argument="y",
                found=a_kind(y),
                fix="pass an eager tensor",
            )
        self._core.extra.append(hold(y._record))

    def retained(self) -> list[Retained]:
        """What the tape keeps: value, declaring operation, shape, bytes, root bytes.

        Raises nothing. Cost: one entry for each retained value; moves no bytes.
        """
        return list(self._core.retained())

    def program(self) -> Program:
        """The recording as a printable `Program`.

        Raises nothing. Cost: one equation for each recorded operation.
        """
        return self._core.program()

    def __repr__(self) -> str:
        core = self._core
        if core.live is None:
            return "<tape, consumed>"
        return f"<tape with {len(core)} nodes, {len(self.retained())} retained values>"


def _consumed(operation: str) -> TapeConsumedError:
    return TapeConsumedError(
        operation=operation,
        argument="tape",
        found="a tape that was used by an earlier backward pass",
        fix="pass `retain=True` to the first pass, or record again on a new "
        "`ta.Tape()`",
    )


def node_on(core: TapeRecord, value: EagerTensor) -> int | None:
    """The node of `value` on that recording."""
    chain = chain_of(value)
    while chain is not None:
        link, node, chain = chain
        if link is core:
            return node  # type: ignore[no-any-return]
        if type(link) is Leaf and link in core.leaves:
            return core.leaves[link]
    return None


def strong_of(core: Any, level: Any, choice: StrongZero, operation: str) -> bool:
    """Decide `strong_zero` on the outermost recorded program.

    Raises:
        InvalidArgumentError: neither a truth value nor "auto".
    """
    if isinstance(choice, bool | np.bool):
        return bool(choice)
    if choice != "auto":
        raise InvalidArgumentError(
            operation=operation,
            argument="strong_zero",
            found=shown(choice),
            fix='use True, False or "auto"',
        )
    if core.has_select:
        return True
    while level is not None:
        if level.core.has_select:
            return True
        level = level.outer
    return False


def seed_of(loss: EagerTensor, cotangent: Any, operation: str) -> EagerTensor:
    """The cotangent to start from: ones for a real scalar, or what the caller gave."""
    aval = loss.aval
    if cotangent is None:
        if aval.shape != () or aval.dtype.kind == "c":
            raise NotScalarError(
                operation=operation,
                argument="loss",
                found=f"a value of shape {aval.shape} and dtype {aval.dtype}",
                fix="reduce it to a real scalar (`ta.sum`, `ta.real`), or "
                + (
                    "pass `cotangent=` of the same shape"
                    if operation == "backward"
                    else "use `ta.vjp`, which takes a cotangent, or `ta.jacrev`"
                ),
            )
        record = direct()[OPS["full"]]((), aval.dtype, 1, aval.device)
        return constant(record)
    ct = as_tensor(cotangent, aval.device)
    if not ct.aval.same(aval):
        raise mismatch(
            ct.aval,
            aval,
            operation=operation,
            argument="cotangent",
            found=f"{ct.aval!r} for a value {aval!r}",
            fix="give the cotangent the shape and dtype of the value",
        )
    return ct


def run_sweep(
    core: TapeRecord, outer: Any, seeds: dict[int, EagerTensor], strong: bool
) -> dict[int, tuple[ValueRecord, Any]]:
    """Sweep over records, or over handles where levels of the present context track
    what the recording kept or the seeds.

    Gives record and chain for each leaf node.
    """
    state = STATE.get()
    if state.trace is not None:
        seeds = {node: inside(state, ct, "backward") for node, ct in seeds.items()}
    level = _around(core, state.level)
    chains = [living(chain_of(ct), "backward", "cotangent") for ct in seeds.values()]
    if outer is None and (level is None or all(c is None for c in chains)):
        records = {node: ct._record for node, ct in seeds.items()}
        found = sweep(core, records, direct(), strong=strong)
        return {n: (r, None) for n, r in found.items()}
    try:
        STATE.set(state.at(level))
        swept = sweep(core, seeds, HANDLES if outer else MIXED, strong=strong)
    finally:
        STATE.set(state)
    return {n: (h._record, h) for n, h in swept.items()}


def _around(core: TapeRecord, level: Any) -> Any:
    """The present level, or, inside a tape's own block, the one around the tape."""
    level = at = open_level(level)
    while at is not None:
        if at.core is core:
            return open_level(at.outer)
        at = at.outer
    return level


def backward_from(
    core: TapeRecord,
    loss: EagerTensor,
    cotangent: Any,
    *,
    retain: bool,
    strong_zero: StrongZero,
    operation: str = "backward",
) -> Gradients:
    """`Tape.backward` on the tape's record; see there."""
    if core.live is None:
        raise _consumed(operation)
    if not isinstance(loss, EagerTensor):
        raise GradientError(
            operation=operation,
            argument="loss",
            found=a_kind(loss),
            fix="pass the eager tensor that was computed on the tape",
        )
    seed = seed_of(loss, cotangent, operation)
    living(chain_of(loss), operation, "loss")
    node = node_on(core, loss)
    if node is None and type(loss._link) is Leaf:
        node = core.leaf(loss._link, loss.aval)  # a variable depends on itself
    if node is None:
        raise InactiveTapeError(
            operation=operation,
            argument="loss",
            found="a value that this tape did not record"
            + (
                "" if loss.is_tracked else " (computed outside it, or from no variable)"
            ),
            fix="compute it from variables inside this tape's `with` block",
        )
    outer = core.outer
    strong = strong_of(core, outer, strong_zero, operation)
    found = run_sweep(core, outer, {node: seed}, strong)
    records: dict[Leaf, ValueRecord] = {}
    chains: dict[Leaf, Any] = {}
    for token, at in core.leaves.items():
        if at in found:
            records[token], chains[token] = found[at]
    if not retain:
        core.consumed = True
        core.close()
    return Gradients(records, chains, wrap, _tree)


def wrap(record: ValueRecord, handle: Any) -> EagerTensor:
    """A handle on a gradient: tracked outside if the pass was."""
    if handle is not None:
        return handle.clone()  # type: ignore[no-any-return]
    return constant(hold(record))


def _tree(params: Any, fn: Any) -> Any:
    return optree.tree_map(fn, params, none_is_leaf=False, namespace="tenferro_ad")


def no_gradients() -> Gradients:
    """The bundle of a value that depends on no variable: every answer is None."""
    return Gradients({}, {}, wrap, _tree)
