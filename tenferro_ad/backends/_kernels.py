"""Host kernels of one application that write into given arrays and allocate no value.

What an endpoint over host memory runs: `run(outs, ins)`. A view is a change of
descriptor and no work, so it has no kernel here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..ops import Call, Elementwise, ElementwiseOp, Library, Op, Write
from ..storage import host_array
from ._backend import Launch
from ._numpy_printer import print_numpy

Array = np.ndarray[Any, Any]
HostKernel = Callable[[Sequence[Array], Sequence[Array]], None]


def has_host_kernel(op: Op) -> bool:
    """Whether `host_kernel` can build one for this row."""
    return isinstance(op.kernel, Elementwise | Write | Library)


def host_kernel(call: Call, backend: str) -> HostKernel:
    """The kernel of `call`, built once.

    Raises:
        UnsupportedError: The row is a view.
    """
    kernel = call.op.kernel
    match kernel:
        case Elementwise():
            assert isinstance(call.op, ElementwiseOp)
            kinds = tuple("c" if a.dtype.kind == "c" else "r" for a in call.ins)
            printed = print_numpy(
                call.op.expr_of(kinds), call.op.args, [a.dtype for a in call.ins]
            )
            run = printed.runner(call.out.shape)
            over = printed.overwriter(call.out.shape)

            def computed(outs: Sequence[Array], ins: Sequence[Array]) -> None:
                in_place = bool(ins) and ins[0] is outs[0]
                (over if in_place else run)(*ins, outs[0])

            return computed
        case Write(fn=write):
            check = kernel.check

            def written(outs: Sequence[Array], ins: Sequence[Array]) -> None:
                if check is not None:
                    check(call, ins)
                write(call, outs, ins)

            return written
        case Library(fn=compute):

            def stored(outs: Sequence[Array], ins: Sequence[Array]) -> None:
                found = compute(call, *ins)
                results = (found,) if len(outs) == 1 else found
                for out, result in zip(outs, results, strict=True):
                    out[...] = result

            return stored
    raise UnsupportedError(
        op=call.op.name,
        backend=backend,
        fix="take the view from the value instead of submitting it",
    )


def host_sum(call: Call, backend: str) -> HostKernel:
    """The kernel that adds the result of `call` to its only output."""
    compute, out = host_kernel(call, backend), call.out

    def adds(outs: Sequence[Array], ins: Sequence[Array]) -> None:
        held = np.empty(out.shape, out.dtype)
        compute([held], ins)
        np.add(outs[0], held, outs[0])

    return adds


def host_operands(
    launch: Launch, memory: Callable[[Any], Array]
) -> tuple[list[Array], list[Array]]:
    """Outputs and operands of a launch over host bytes; an operand that is computed in
    place is the output's own array.

    Args:
        memory: the whole allocation's bytes behind a binding.
    """
    outs, reads = (
        [host_array(a.descriptor, memory(a.binding)) for a in arguments]
        for arguments in (launch.writes, launch.reads)
    )
    ins = [
        k if isinstance(k, np.ndarray) else reads[k] if k >= 0 else outs[~k]
        for k in launch.operands
    ]
    return outs, ins
