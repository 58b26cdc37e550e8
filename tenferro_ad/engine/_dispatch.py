"""The seam: every operation on handles passes `HANDLES`, and only there is it recorded.

Each operation is bound once to a function that finds the plan, computes, and lets the
recording levels of the current context note the equation. Levels form a chain from the
innermost (`State.level`) outwards; a value carries one (recording, node) link for each
level that tracks it, so nested derivatives never mix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from .._ledger import STATE, State
from ..errors import InactiveTapeError
from ..ops import Call, Evaluator, Op
from ..runtime import DIRECT, pair_plan, plan_of
from ..storage import ValueRecord
from ..tape import Leaf, hold
from ._eager import EagerTensor
from ._operands import NUMBERS, as_handles, number_handle
from ._written import written_out

Chain = Any  # (link, node, outer chain) or None


class Level(Protocol):
    """A recording level of the current context.

    Attributes:
        core: what handles link to; compares by identity.
        outer: the next level out, or None.
        watches: leaves (`ta.variable`) become nodes of this level when they are used.
        opaque: levels outside see nothing of what happens inside (a checkpoint region).
        records_all: equations without tracked inputs are recorded too.
        is_simple: a tape with no level outside; the fast paths ask this.
        closed: its block was left; it records nothing any more.
        pulls: it is for reverse mode, and keeps what rules declare.
    """

    core: Any
    outer: Level | None
    watches: bool
    opaque: bool
    records_all: bool
    is_simple: bool
    closed: bool
    pulls: bool

    def note(
        self,
        call: Call,
        nodes: list[int],
        records: tuple[ValueRecord, ...],
        chains: list[Chain],
        outs: list[ValueRecord],
        above: list[Chain],
    ) -> list[int]:
        """Record one equation; gives each output's node, or -1 where it is untracked.

        `chains` and `above` are what the levels outside know of inputs and outputs.
        """


def chain_of(x: EagerTensor) -> Chain:
    link = x._link
    return None if link is None else (link, x._node, x._outer)


def _chains(level: Any, op: Op, operands: tuple[EagerTensor, ...]) -> list[Chain]:
    """What the levels of the context may read of the operands' links."""
    if level is None:
        return [chain_of(x) for x in operands]
    names = op.args * len(operands) if op.variadic else op.args
    return [
        living(chain_of(x), op.name, name)
        for x, name in zip(operands, names, strict=False)
    ]


def value_at(record: ValueRecord, chain: Chain) -> EagerTensor:
    """A value as an outer level sees it: one more handle, with its links."""
    hold(record)
    if chain is None:
        return EagerTensor(record, None, -1, None)
    link, node, outer = chain
    if link.live is not None:
        link.keep(node)
    while outer is not None:
        outer[0].keep(outer[1])
        outer = outer[2]
    return EagerTensor(record, link, node, chain[2])


def emit(
    level: Any,
    call: Call,
    records: tuple[ValueRecord, ...],
    chains: list[Chain],
    outs: list[ValueRecord],
) -> list[Chain]:
    """Let every level note the equation, outermost first; gives the outputs' chains."""
    if level is None:
        for i, chain in enumerate(chains):
            if chain is not None and chain[0].live is not None:
                op = call.op
                raise InactiveTapeError(
                    operation=op.name,
                    argument=op.args[0] if op.variadic else op.args[i],
                    found="a value tracked by a tape that is not active here",
                    fix="use it inside that tape's `with` block, finish with "
                    "`tape.backward`, or take `ta.stop_gradient` of it",
                )
        return [None] * len(outs)
    if level.closed or level.core.live is None:
        return emit(level.outer, call, records, chains, outs)
    core = level.core
    here: list[int] = []
    rest: list[Chain] = []
    for record, chain in zip(records, chains, strict=True):
        if chain is None:
            here.append(-1)
            rest.append(None)
        elif chain[0] is core:
            here.append(chain[1])
            rest.append(chain[2])
        else:
            # A level that watches makes nodes of leaves; the others know the leaves
            # that were named to them.
            if type(chain[0]) is not Leaf:
                here.append(-1)
            elif level.watches:
                here.append(core.leaf(chain[0], record.aval))
            else:
                here.append(core.leaves.get(chain[0], -1))
            rest.append(chain)
    if level.opaque:
        nodes = level.note(call, here, records, rest, outs, [None] * len(outs))
        return [(core, n, None) for n in nodes]
    mine = any(n >= 0 for n in here)
    around = call.outside() if mine and call.has_rules else call
    above = emit(level.outer, around, records, rest, outs)
    if not mine:
        return above
    nodes = level.note(call, here, records, rest, outs, above)
    return [(core, n, a) if n >= 0 else a for n, a in zip(nodes, above, strict=True)]


def handles(outs: list[ValueRecord], chains: list[Chain]) -> list[EagerTensor]:
    return [
        EagerTensor(r, None, -1, None) if c is None else EagerTensor(r, *c)
        for r, c in zip(outs, chains, strict=True)
    ]


def apply(op: Op, operands: tuple[Any, ...], params: tuple[Any, ...]) -> Any:
    """The general path: any operands, any levels."""
    operands = as_handles(op, operands)
    state = STATE.get()
    if state.trace is not None:
        operands = tuple([inside(state, x, op.name) for x in operands])
    records = tuple([x._live(op.name) for x in operands])
    plan = plan_of(op, tuple([r.aval for r in records]), params)
    call = plan.call
    known = len(call.outs)
    if op.recorded is not None:
        mask = pulled_mask(state.level, operands)
        if mask and call.is_differentiable:
            op, params = op.recorded(call, mask)
            plan = plan_of(op, call.ins, params)
            call = plan.call
    result: Any
    if state.trace is None:
        result = plan.execute(state, *records)
    else:
        result = state.trace.apply(op, records, params)
    if len(call.outs) == 1:
        if state.core is not None and call.is_differentiable:
            made = _on_tape(state.level, call, operands, records, result)
            if made is not None:
                return made
        return _finish(state.level, call, operands, records, result)
    outs = list(result)
    level = state.level
    chains = _chains(level, op, operands)
    untracked = not call.is_differentiable or all(c is None for c in chains)
    if untracked and (level is None or not level.records_all):
        found = [EagerTensor(r, None, -1, None) for r in outs]
    else:
        found = handles(outs, emit(level, call, records, chains, outs))
    del outs, result
    return found[0] if known == 1 else tuple(found[:known])


def pulled_mask(level: Any, operands: Sequence[EagerTensor]) -> int:
    """The operands that reverse levels of the context track (bit i: operand i)."""
    cores, watches = set(), False
    while level is not None:
        if level.pulls and not level.closed:
            cores.add(level.core)
            watches = watches or level.watches
        level = level.outer
    mask = 0
    for i, x in enumerate(operands if cores else ()):
        chain = chain_of(x)
        while chain is not None:
            link = chain[0]
            if link in cores or (type(link) is Leaf and _follows(link, cores, watches)):
                mask |= 1 << i
                break
            chain = chain[2]
    return mask


def _follows(leaf: Leaf, cores: set[Any], watches: bool) -> bool:
    return watches or any(leaf in core.leaves for core in cores)


def inside(state: State, x: EagerTensor, operation: str) -> EagerTensor:
    """A handle as the open trace knows it: a value from outside becomes a constant of
    the program. Levels opened inside the trace keep their links; what those outside
    know stays with the constant."""
    trace, record = state.trace, x._live(operation)
    if trace.owns(record):
        return x
    cores = set()
    level = state.level
    while level is not None:
        cores.add(level.core)
        level = level.outer
    chain = chain_of(x)
    inner: list[tuple[Any, int]] = []
    while chain is not None and chain[0] in cores:
        inner.append(chain[:2])
        chain = chain[2]
    rest = chain
    symbolic = trace.capture(
        record,
        None if rest is None else (id(rest[0]), rest[1]),
        lambda: value_at(record, rest),
    )
    symbolic.tokens.append(None)
    while chain is not None and type(chain[0]) is not Leaf:
        chain = chain[2]
    for link, node in reversed(inner):
        link.keep(node)
        chain = (link, node, chain)
    if chain is None:
        return EagerTensor(symbolic, None, -1, None)
    return EagerTensor(symbolic, *chain)


def leaf_node(level: Any, link: Any, aval: Any) -> int | None:
    """The node of a leaf that a tape meets for the first time; None for other links."""
    if type(link) is Leaf and level.watches and level.core.live is not None:
        return level.core.leaf(link, aval)  # type: ignore[no-any-return]
    return None


def _on_tape(
    level: Any,
    call: Call,
    operands: tuple[EagerTensor, ...],
    records: tuple[ValueRecord, ...],
    out: ValueRecord,
) -> EagerTensor | None:
    """Record one output on a tape with no level outside; None where that is not all."""
    core = level.core
    nodes = []
    mask = 0
    for i, x in enumerate(operands):
        link = x._link
        if link is core:
            node: int | None = x._node
        elif link is None:
            continue
        else:
            node = core.leaves.get(link)
            if node is None:
                node = leaf_node(level, link, records[i].aval)
                if node is None:
                    return None
        nodes.append(node)
        mask |= 1 << i
    if not mask:
        return EagerTensor(out, None, -1, None)
    spec = call.spec(mask)
    saved = tuple([hold(out if s < 0 else records[s]) for s in spec.saves])
    if call.is_select:
        core.has_select = True
    return EagerTensor(out, core, core.append(spec, tuple(nodes), saved), None)


def apply_region(call: Any, operands: Sequence[EagerTensor]) -> list[EagerTensor]:
    """A region's call on handles: one equation of every level and of an open trace."""
    state = STATE.get()
    name = call.op.name
    if state.trace is not None:
        operands = [inside(state, x, name) for x in operands]
    records = tuple([x._live(name) for x in operands])
    run = call.run(DIRECT, records) if state.trace is None else None
    outs = state.trace.apply_call(call, records) if run is None else run
    chains = [living(chain_of(x), name, "inputs") for x in operands]
    if all(c is None for c in chains):
        return [EagerTensor(r, None, -1, None) for r in outs]
    return handles(outs, emit(state.level, call, records, chains, outs))


class HandleEvaluator(Evaluator):
    """`F` over handles: computes and lets the levels of the context record."""

    def region(self, call: Any, operands: Any) -> list[Any]:
        """The region as one equation."""
        return apply_region(call, operands)

    def literal(self, record: ValueRecord) -> EagerTensor:
        """A number as an operand."""
        return EagerTensor(record, None, -1, None)

    def bind(self, op: Op) -> Callable[..., Any]:
        if op.variadic:
            return lambda xs, *params: apply(op, tuple(xs), params)
        n = len(op.args)
        if op.params or n > 2 or len(op.outs) > 1:
            return lambda *operands: apply(op, operands[:n], operands[n:])
        if n == 1:
            return written_out(op, _general_unary, _finish, leaf_node)
        return written_out(op, _general_binary, _finish, leaf_node)


def _general_unary(op: Op, x: Any) -> Any:
    result = apply(op, (x,), ())
    if type(x) is EagerTensor:
        op.plans[x.aval] = plan_of(op, (x.aval,), ())
    return result


def _general_binary(op: Op, x: Any, y: Any) -> Any:
    if type(x) is EagerTensor:
        if type(y) in NUMBERS:
            aval = x._live(op.name).aval
            return HANDLES[op](x, number_handle(y, aval.dtype, aval.device))
        if type(y) is EagerTensor:
            result = apply(op, (x, y), ())
            pair_plan(op, x.aval, y.aval)
            return result
    elif type(y) is EagerTensor and type(x) in NUMBERS:
        aval = y._live(op.name).aval
        return HANDLES[op](number_handle(x, aval.dtype, aval.device), y)
    return apply(op, (x, y), ())


def _finish(
    level: Any,
    call: Call,
    operands: tuple[EagerTensor, ...],
    records: tuple[ValueRecord, ...],
    out: ValueRecord,
) -> EagerTensor:
    """Levels other than a single tape; none at all; nothing to differentiate."""
    untracked = not call.is_differentiable or all(x._link is None for x in operands)
    if untracked and (level is None or not level.records_all):
        return EagerTensor(out, None, -1, None)
    chains = _chains(level, call.op, operands)
    return handles([out], emit(level, call, records, chains, [out]))[0]


HANDLES: Final = HandleEvaluator()
"""Operations on eager tensors: `HANDLES.mul(x, y)`."""


def enter_level(level: Any) -> None:
    """Make `level` the innermost one: inside the `try` whose end is `leave_level`, so
    that an interrupt changes nothing."""
    STATE.set(STATE.get().at(level))


def leave_level(before: State) -> None:
    """Return to the levels of `before`, without those that were left meanwhile (a
    generator may leave a tape in the middle of somebody else's block)."""
    level, account = open_level(before.level), STATE.get().account
    STATE.set(State(account, before.reason, level, before.trace))


def open_level(level: Any) -> Any:
    """The innermost of `level` and the levels around it that is still open."""
    while level is not None and (level.closed or level.core.live is None):
        level = level.outer
    return level


def living(chain: Chain, operation: str, argument: str) -> Chain:
    """What a value's links still say: recordings that ended say nothing, those around
    them still do.

    Raises:
        InactiveTapeError: the value left a checkpointed region in another way than by
            being returned, so no recording knows how it came about.
    """
    while chain is not None and chain[0].live is None and type(chain[0]) is not Leaf:
        if chain[0].is_region:
            raise InactiveTapeError(
                operation=operation,
                argument=argument,
                found="a value that left a checkpointed region without being returned",
                fix="return it from the function, or take `ta.stop_gradient` of it",
            )
        chain = chain[2]
    return chain
