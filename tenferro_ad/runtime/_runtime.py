"""`Runtime`: compiled graphs on one endpoint, detached or scoped (contract G3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from ..backends import CPU, DEADLINE, Engine, HostEndpoint, HostStream
from ..errors import InvalidArgumentError, named
from ..ops import Program
from ..storage import Contiguous
from ._arguments import deadline_of, seconds_of, shown
from ._direct import device_of
from ._graph import CompiledGraph, compile_program
from ._graph_work import GraphWork, check_bindings, check_inputs, settle
from ._package import ExecutionInputs, avals_of, descriptor_of
from ._scoped import ScopedExecutionOutcome, ScopedReadInputs, execute_scoped
from ._submission import ExecutionHandle, submitted
from ._work import Work


@final
class Runtime:
    """Runs compiled graphs on an endpoint, in the order they are submitted.

        rt = ta.Runtime("cpu")
        graph = rt.compile(ta.trace(lambda x: x * 2.0, ta.Spec((3,), ta.float64)))
        owner = ta.asarray([1.0, 2.0, 3.0]).into_value()
        handle = rt.submit(graph, ta.ExecutionInputs.of_tensors([owner]))
        match handle.wait():
            case ta.Completed(bundle):
                doubled = bundle.into_output(0)

    Args:
        endpoint: discovery name ("cpu"), a device (`x.device`), or an endpoint.
        name: the engine's id, of your choice; it stands in messages.
        deadline: seconds (above 0) without proof of completion after which work counts
            as unproven; long on purpose.

    Raises:
        InvalidArgumentError: no device or endpoint of this name or kind, a name that
            is no text, a deadline that is no number above 0.
        ForkedProcessError: a device of the process that this one was forked from.

    Cost: nothing runs before the first submission, which starts two threads; they end
        with `close` or with the runtime.
    """

    __slots__ = ("_engine", "_scoped", "name")

    @named("Runtime", device="endpoint")
    def __init__(
        self,
        endpoint: Any = "cpu",
        *,
        name: str | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        patience = deadline_of("Runtime", "deadline", deadline)
        if not isinstance(name, str | None):
            raise InvalidArgumentError(
                operation="Runtime",
                argument="name",
                found=shown(name),
                fix="give a text, or None for the endpoint's own name",
            )
        endpoint, scoped = endpoints_of(endpoint)
        self.name = endpoint.name if name is None else name
        self._engine = Engine(endpoint, patience, id=self.name)
        self._scoped = scoped

    @property
    def endpoint(self) -> Any:
        """Where submitted work runs."""
        return self._engine.endpoint

    def compile(self, traced: Any) -> CompiledGraph:
        """The graph of a traced program.

        Args:
            traced: what `ta.trace` gave.

        Raises:
            InvalidArgumentError: not a traced program, or one that returns a tensor it
                closed over (its owner is the graph's: pass it as an input).
            UnsupportedError: a value moves to another device inside the program.

        Cost: time linear in the program; nothing is allocated or run.
        """
        program = getattr(traced, "program", None)
        fits = hasattr(traced, "metadata") and not isinstance(traced, CompiledGraph)
        if not isinstance(program, Program) or not fits:
            raise InvalidArgumentError(
                operation="Runtime.compile",
                argument="traced",
                found=shown(traced),
                fix="pass `ta.trace(fn, *specs)`; give named sizes with `.at(...)`",
            )
        constants = [c._record for c in traced.constants]
        graph = compile_program(
            program,
            constants,
            metadata=traced.metadata,
            operation="Runtime.compile",
        )
        plan = graph.plan
        count = len(graph.in_avals)
        for v in plan.program.outputs:
            root = plan.roots[v]
            if root.kind == "input" and root.number >= count:
                raise InvalidArgumentError(
                    operation="Runtime.compile",
                    argument="traced",
                    found="a program that returns a tensor it closed over",
                    fix="pass that tensor as an argument, or return a result of it",
                )
        return graph

    def submit(self, graph: CompiledGraph, inputs: ExecutionInputs) -> ExecutionHandle:
        """Use up the inputs and run the graph on them, detached.

        Raises:
            SubmitRejected: nothing was enqueued; `into_parts()` gives the cause and
                the exact inputs: a wrong number of bindings, a shape, dtype or device
                that was not traced, one slot bound twice, a donation that no output
                can use, an attached value that the program returns, an engine that is
                lost.
            UseAfterMoveError: the inputs were used up before.

        Cost: allocates the outputs and arenas, copies nothing, waits for the answer to
            the first enqueue (and for eager work that still writes an attached value)
            and not for the work.
        """
        _require(graph, "submit")
        if not isinstance(inputs, ExecutionInputs):
            raise InvalidArgumentError(
                operation="submit",
                argument="inputs",
                found=shown(inputs),
                fix="move the values into `ExecutionInputs`: a task owns what it uses",
            )

        def work() -> Work:
            bindings = inputs._ei_bindings
            check_inputs(graph, self.endpoint, avals_of(inputs), "submit")
            made = GraphWork(_variant(graph, inputs))
            check_bindings(made, bindings)
            settle(inputs, graph.held, "submit")
            return made

        return submitted(self._engine, inputs, work, "submit", "compiled graph")

    def execute_scoped_read_only(
        self, graph: CompiledGraph, inputs: ScopedReadInputs
    ) -> ScopedExecutionOutcome:
        """Run the graph on borrowed views, to its end.

        Returns:
            `Completed(ScopedExecutionBundle)` or `RetiredFailed(cause, inputs)`, once
            the work has retired.

        Raises:
            ScopedSubmitRejected: the endpoint is asynchronous, or the inputs do not
                fit; `into_parts()` gives the cause and the exact inputs.

        Cost: allocates outputs and arenas, copies nothing, waits for the work.
        """
        _require(graph, "execute_scoped_read_only")
        return execute_scoped(self._scoped, graph, inputs)

    def close(self, timeout: float | None = None) -> bool:
        """Accept nothing more and wait until everything submitted has ended.

        Args:
            timeout: seconds to wait at most; None is for ever, 0 or less only looks.

        Returns:
            Whether it all ended within `timeout` seconds.

        Raises:
            InvalidArgumentError: `timeout` is no number of seconds; the runtime is
                as it was.

        Cost: waits; moves no bytes.
        """
        return self._engine.close(seconds_of("close", "timeout", timeout))

    def __repr__(self) -> str:
        return f"Runtime({self.name!r} on {self.endpoint!r})"


_OFFERED: Final = ("name", "memory", "is_synchronous", "is_lost", "enqueue")
"""What every endpoint has, see `Endpoint`."""


def endpoints_of(given: Any) -> tuple[Any, Any]:
    """Where detached and where scoped work of a device runs.

    The CPU is one allocation domain with two endpoints: a stream of its own for each
    runtime, and one that ends work inside the call.
    """
    if isinstance(given, str):
        given = CPU if given == "cpu:stream" else device_of(given, "Runtime")
    if given is CPU:
        return HostStream("cpu:stream", CPU), HostEndpoint("cpu", CPU)
    endpoint = getattr(given, "endpoint", given)
    is_endpoint = all(hasattr(endpoint, name) for name in _OFFERED)
    if not is_endpoint or isinstance(endpoint, type):
        raise InvalidArgumentError(
            operation="Runtime",
            argument="endpoint",
            found=shown(given),
            fix="give a discovery name, a tensor's device, or an endpoint",
        )
    require = getattr(endpoint.memory, "require_process", None)
    if require is not None:
        require("Runtime")
    return endpoint, endpoint


def _variant(graph: CompiledGraph, inputs: ExecutionInputs) -> CompiledGraph:
    """The graph for these layouts and donations, which the package names `donate`."""
    try:
        return graph.variant(inputs._ei_donated, strides_of_inputs(inputs))
    except InvalidArgumentError as error:
        if error.argument != "donate_argnums":
            raise
        raise InvalidArgumentError(
            operation="submit", argument="donate", found=error.found, fix=error.fix
        ) from None


def strides_of_inputs(inputs: ExecutionInputs) -> Sequence[tuple[int, ...] | None]:
    """Byte strides of each bound input, None for row-major ones."""
    found: list[tuple[int, ...] | None] = []
    for binding in inputs._ei_bindings:
        descriptor = descriptor_of(inputs, binding)
        layout = descriptor.layout
        found.append(None if isinstance(layout, Contiguous) else descriptor.strides)
    return found


def _require(graph: Any, operation: str) -> None:
    if not isinstance(graph, CompiledGraph):
        raise InvalidArgumentError(
            operation=operation,
            argument="graph",
            found=shown(graph),
            fix="pass what `Runtime.compile` gave",
        )
