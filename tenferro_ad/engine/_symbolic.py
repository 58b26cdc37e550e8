"""One program for any size of some axes.

`ta.trace(f, Spec(("n", 784)))` traces `f` at a few sizes and keeps what they have in
common: the equations, and how every number in them (shapes, parameters, scalars)
follows from the sizes. Further traces, at ever larger sizes, only check that. A size
that changes which operations run, or how they depend on one another, is refused; so is
a number that is not a sum of products of sizes (or one over such a sum).

Sizes below the smallest that was tried are traced on their own (1 broadcasts, 0 has no
element, `x[3]` needs 4); so are those beyond the first check that says something else
(`x[:100]` changes at 100), and beyond the last one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, final

from .._aval import Aval, aval_of
from ..errors import InvalidArgumentError, ShapeError, TenferroError
from ..ops import Body, Equation, Program, body_of
from ..runtime import plan_of, scalar_record
from ..tape import RegionCall
from ._sizes import MOST_NAMES, NEEDED, Size, fitted, points
from ._watched_sizes import Watch


@final
@dataclass(frozen=True, slots=True)
class Guard:
    """A comparison of sizes, and the answer that the program was traced with."""

    compare: Callable[[Any, Any], bool]
    left: Any
    right: Any
    answer: bool

    def holds_at(self, sizes: Mapping[str, int]) -> bool:
        left, right = _number(self.left, sizes), _number(self.right, sizes)
        return self.compare(left, right) == self.answer


# ---- programs in common --------------------------------------------------------------


@final
class Template:
    """What programs traced at several sizes have in common."""

    __slots__ = ("base", "guards", "literals", "names", "params", "shapes")

    def __init__(
        self,
        names: Sequence[str],
        programs: Sequence[Program],
        watches: Sequence[Watch] = (),
    ) -> None:
        base = programs[0]
        self.names, self.base = tuple(names), base
        for other in programs[1:]:
            same_equations(base, other)
        self.shapes = [
            self._common(shapes, f"the shape of v{v}")
            for v, shapes in enumerate(
                zip(*[[a.shape for a in p.avals] for p in programs], strict=True)
            )
        ]
        self.params = [
            self._common(
                [_params(p.equations[k].call) for p in programs], eq.call.op.name
            )
            for k, eq in enumerate(base.equations)
        ]
        self.literals = {
            v: self._common([p.literals[v].array.item() for p in programs], "a number")
            for v in base.literals
        }
        self.guards = [
            self._guard(asked)
            for asked in zip(*[w.asked for w in watches], strict=True)
        ]

    def _guard(self, asked: Sequence[tuple[str, Any, Any, bool]]) -> Guard | None:
        """What was asked at each size; None where the program does not depend on it,
        because it is the same for both answers."""
        ask, _, _, answer = asked[0]
        if any(a[3] != answer for a in asked):
            return None
        both = [
            self._common([a[side] for a in asked], "a comparison") for side in (1, 2)
        ]
        return Guard(getattr(operator, ask), both[0], both[1], answer)

    def holds_at(self, sizes: Mapping[str, int]) -> bool:
        """Whether the function would be answered the same at these sizes."""
        return all(g is None or g.holds_at(sizes) for g in self.guards)

    def _common(self, found: Sequence[Any], where: str) -> Any:
        """The values as one: equal ones as they are, numbers as a `Size`."""
        first = found[0]
        if isinstance(first, Program):
            return Template(self.names, found)
        if isinstance(first, Body):
            if all(x == first for x in found):
                return first
            return _Bodies(Template(self.names, [x.program for x in found]), first)
        if isinstance(first, tuple):
            if any(len(x) != len(first) for x in found):
                refuse(where, "a parameter whose length depends on a size")
            return tuple(
                self._common(parts, where) for parts in zip(*found, strict=True)
            )
        if isinstance(first, int | float) and not isinstance(first, bool):
            fit = fitted(self.names, found)
            if fit is None:
                refuse(where, f"numbers {list(found)} that follow no simple rule")
            return fit
        if any(x is not first and x != first for x in found):
            refuse(where, "a parameter that depends on a size")
        return first

    def at(self, sizes: Mapping[str, int], ins: Sequence[Aval]) -> Program:
        """The program at these sizes; shapes are inferred anew, so a wrong guess
        cannot pass."""
        base = self.base
        made = Program(list(base.inputs), [], base.outputs, list(base.avals))
        for v, aval in zip(base.inputs, ins, strict=True):
            made.avals[v] = aval
        for v, value in self.literals.items():
            old = base.literals[v].aval
            made.literals[v] = scalar_record(
                _number(value, sizes), old.dtype, old.device
            )
        for eq, params in zip(base.equations, self.params, strict=True):
            avals = tuple([made.avals[v] for v in eq.operands])
            call: Any
            if isinstance(eq.call, RegionCall):
                call = RegionCall(params.at(sizes, avals))
            else:
                call = plan_of(eq.call.op, avals, _filled(params, sizes, avals)).call
            for v, aval in zip(eq.outs, call.outs, strict=True):
                made.avals[v] = aval
            made.equations.append(
                Equation(call, eq.ins, eq.outs, eq.saves, eq.recompute, eq.mode)
            )
        made.check()
        return made

    def format(self) -> str:
        """The program's text, with the names of the sizes."""
        text = Program(
            list(self.base.inputs),
            [],
            self.base.outputs,
            [
                _Shown(f"{a.dtype}{list(shape)}")  # type: ignore[misc]
                for a, shape in zip(self.base.avals, self.shapes, strict=True)
            ],
            {v: _ShownNumber(x) for v, x in self.literals.items()},
        )
        for eq, params in zip(self.base.equations, self.params, strict=True):
            shown = params if isinstance(params, tuple) else (self.base,)
            call = _ShownCall(eq.call.op, shown)
            text.equations.append(
                Equation(call, eq.ins, eq.outs, (), eq.recompute, eq.mode)
            )
        return text.format(limit=10_000)


@dataclass(frozen=True, slots=True)
class _Bodies:
    """The bodies of a loop or a branch at several sizes."""

    template: Template
    first: Body

    def at(self, sizes: Mapping[str, int]) -> Body:
        template = self.template
        base = template.base
        avals = [
            aval_of(
                tuple(_number(n, sizes) for n in template.shapes[v]),
                base.avals[v].dtype,
                base.avals[v].device,
            )
            for v in base.inputs
        ]
        return body_of(template.at(sizes, avals), self.first.tools)

    def __repr__(self) -> str:
        return repr(self.first)


class _Shown:
    """An aval for texts."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class _ShownNumber:
    """A literal for texts."""

    def __init__(self, array: Any) -> None:
        self.array = array


class _ShownCall:
    """A call for texts."""

    def __init__(self, op: Any, params: tuple[Any, ...]) -> None:
        self.op, self.params = op, params if op.params else ()


def _params(call: Any) -> Any:
    return call.program if isinstance(call, RegionCall) else call.params


def _number(value: Any, sizes: Mapping[str, int]) -> Any:
    return value.at(sizes) if isinstance(value, Size) else value


def _filled(tree: Any, sizes: Mapping[str, int], ins: Sequence[Aval]) -> Any:
    if isinstance(tree, Size):
        return tree.at(sizes)
    if isinstance(tree, tuple):
        return tuple(_filled(x, sizes, ins) for x in tree)
    return tree.at(sizes) if isinstance(tree, _Bodies) else tree


def same_equations(first: Program, second: Program) -> None:
    if len(first.equations) != len(second.equations) or len(first.avals) != len(
        second.avals
    ):
        refuse("trace", "another number of operations at another size")
    for a, b in zip(first.equations, second.equations, strict=True):
        same = type(a.call) is type(b.call) and (
            isinstance(a.call, RegionCall) or a.call.op is b.call.op
        )
        if not same or (a.ins, a.outs, a.mode) != (b.ins, b.outs, b.mode):
            refuse(a.call.op.name, "other operations at another size")
    if (first.inputs, first.outputs, list(first.literals)) != (
        second.inputs,
        second.outputs,
        list(second.literals),
    ):
        refuse("trace", "other inputs, outputs or numbers at another size")


def refuse(where: str, what: str) -> NoReturn:
    raise InvalidArgumentError(
        operation="trace",
        argument="specs",
        found=f"{what} (`{where}`)",
        fix="let sizes only enter shapes, or give this axis a number",
    )


def sizes_of(
    names: Sequence[str], shapes: Sequence[tuple[Any, ...]], found: Sequence[Any]
) -> dict[str, int]:
    """The size of each name, from the shapes that a call gives.

    Raises:
        ShapeError: one name would have two sizes, or a fixed axis another length.
    """
    sizes: dict[str, int] = {}
    for k, (shape, given) in enumerate(zip(shapes, found, strict=True)):
        fits = len(shape) == len(given)
        if fits:
            for n, m in zip(shape, given, strict=True):
                wanted = sizes.setdefault(n, m) if isinstance(n, str) else n
                fits = fits and wanted == m
        if not fits:
            known = ", ".join(f"{n} = {m}" for n, m in sizes.items())
            raise ShapeError(
                operation="traced program",
                argument=f"args (tensor {k})",
                found=f"shape {tuple(given)} where {_text(shape)} was traced"
                + (f", with {known}" if known else ""),
                fix="give every axis of one name one length",
            )
    missing = [n for n in names if n not in sizes]
    assert not missing
    return sizes


def _text(shape: tuple[Any, ...]) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def template_of(
    names: Sequence[str],
    traced: Callable[[Mapping[str, int]], tuple[Program, Watch]],
) -> tuple[Template, dict[str, range]]:
    """The template of what `traced(sizes)` gives, and the sizes that it is known to
    hold for.

    Raises:
        InvalidArgumentError: too many names, or programs that differ in more than
            numbers.
    """
    if len(names) > MOST_NAMES:
        raise InvalidArgumentError(
            operation="trace",
            argument="specs",
            found=f"{len(names)} named sizes",
            fix=f"name at most {MOST_NAMES}, and give the other axes numbers",
        )
    known = points(names)
    first = 2 ** len(names) + NEEDED
    programs: list[Program] = []
    watches: list[Watch] = []

    def add(sizes: Mapping[str, int]) -> None:
        program, watch = traced(sizes)
        programs.append(program)
        watches.append(watch)
        same_equations(programs[0], program)
        if watches[0].equations != watch.equations:
            refuse("trace", "another number of operations at another size")
        if [a[0] for a in watches[0].asked] != [a[0] for a in watch.asked]:
            refuse("trace", "other comparisons at another size")

    for sizes in known[:first]:
        add(sizes)
    found, limit = Template(names, programs, watches), known[first - 1]
    for sizes in known[first:]:
        try:
            add(sizes)
            found, limit = Template(names, programs, watches), sizes
        except TenferroError:  # something else from here on
            break
    return found, {n: range(low, limit[n] + 1) for n, low in known[0].items()}


__all__ = ["MOST_NAMES", "Size", "Template", "refuse", "sizes_of", "template_of"]
