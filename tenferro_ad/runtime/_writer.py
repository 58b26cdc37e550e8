"""Writes a schedule as one straight-line function over arrays."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from .._ledger import DUPLICATE_DESTINATION, RECOMPUTE_OUTPUT
from ..ops import Elementwise, Library, Region, View, Write
from ..storage import POOLED_FROM, adopt, allocate, overwrite
from ._loops import FORMS
from ._places import Root, Schedule, Step
from ._written import Written, stand_ins

Array = np.ndarray[Any, Any]
_TRANSPOSED: Final = re.compile(r"\bv(\d+)\.T\b")
# Names of the states under which outputs are allocated.
_STATES: Final = {RECOMPUTE_OUTPUT: "again", DUPLICATE_DESTINATION: "copying"}


class Writer:
    """Writes the function. `v3` is the array of variable 3, `x0` the record of input 0,
    `r0` that of output root 0, `b0` the first body."""

    def __init__(self, schedule: Schedule) -> None:
        self.s = schedule
        self.space: dict[str, Any] = {
            "add": np.add,
            "adopt": adopt,
            "allocate": allocate,
            "copyto": np.copyto,
            "overwrite": overwrite,
        }
        self._named: dict[Any, str] = {}
        self.lines: list[str] = []
        self.scratch = 0
        self.bodies: list[tuple[Written, dict[int, int]]] = []
        self._same = stand_ins(schedule)
        steps = schedule.steps
        used = {v for step in steps for v in step.equation.ins}
        used |= {v for step in steps for v in step.equation.outs}
        used |= {v for step in steps for v in step.registers}
        used |= set(schedule.program.outputs)
        self._fixed = frozenset(
            v for v in used if schedule.roots[v].kind in ("arena", "constant")
        )
        self._starts: dict[int, list[Root]] = {}
        for root in schedule.outputs:
            self._starts.setdefault(root.start, []).append(root)

    def v(self, variable: int) -> str:
        """The name of a variable's array."""
        return f"v{self._same.get(variable, variable)}"

    def written(self) -> Written:
        s = self.s
        for k, v in enumerate(s.program.inputs):
            self.lines.append(f"v{v} = {self._input(k)}")
        for step in s.steps:
            for root in self._begins(step):
                op = step.equation.call.op.name
                self._output(root, op, f"v{root.variables[0]}")
            self._step(step)
        for v, root in s.numbers.items():
            self._output(root, "number", f"m{root.number}")
            self.lines.append(f"copyto(m{root.number}, v{v})")
        results = [self._result(v) for v in s.program.outputs]
        transposed = self._transpose_once()
        static = sorted({self._same.get(v, v) for v in self._fixed})
        params = "".join(f", {name}" for name in self._params())
        names = [f"v{v}" for v in static] + [f"v{v}t" for v in transposed]
        names += [f"b{k}" for k in range(len(self.bodies))]
        source = [
            f"def make({', '.join(names)}):",
            f"    def replay(state{params}):",
            *(f"        {line}" for line in (*self._head(), *self.lines)),
            f"        return [{', '.join(results)}]",
            "    return replay",
        ]
        exec(compile("\n".join(source), "<tenferro_ad>", "exec"), self.space)
        return Written(
            s,
            self.space["make"],
            tuple(static),
            tuple(transposed),
            tuple(self.bodies),
            self.scratch,
        )

    def _head(self) -> list[str]:
        head = [
            f"{name} = state.under({reason})"
            for reason, name in _STATES.items()
            if any(f"({name}," in line for line in self.lines)
        ]
        if self.scratch:
            head.append(f"state.account.use_workspace({self.scratch})")
        return head

    def _transpose_once(self) -> list[int]:
        """Kernels that read `v3.T` share one array: of places in an arena for good, of
        other variables within the run. Gives the former."""
        made: set[str] = set()
        lines: list[str] = []
        for line in self.lines:
            for name in sorted(set(_TRANSPOSED.findall(line))):
                if int(name) not in self._fixed and name not in made:
                    lines.append(f"v{name}t = v{name}.T")
                made.add(name)
            lines.append(_TRANSPOSED.sub(r"v\1t", line))
        self.lines = lines
        return sorted(int(n) for n in made if int(n) in self._fixed)

    def _begins(self, step: Step) -> list[Root]:
        starts = self._starts.get(step.number, ())
        return [r for r in starts if not self._adopted(r, step)]

    def _name(self, prefix: str, value: Any) -> str:
        """A name for something that the function refers to: one for each thing, and for
        equal numbers."""
        key: Any = id(value)
        if isinstance(value, np.ndarray) and not value.ndim:
            key = value.dtype, value.tobytes()
        found = self._named.get(key)
        if found is None:
            if not prefix.isidentifier():  # a lambda
                prefix = "fn"
            found = self._named[key] = f"{prefix}_{len(self.space)}"
            self.space[found] = value
        return found

    # -- inputs and outputs: records ---------------------------------------------------

    def _params(self) -> list[str]:
        return ["spent", *[f"x{k}" for k in range(len(self.s.program.inputs))]]

    def _input(self, k: int) -> str:
        return f"x{k}.array"

    def _output(self, root: Root, op: str, name: str) -> None:
        """Memory of an output: fresh, or that of a donated input."""
        if root.taken is None:
            state = _STATES.get(root.reason, "state")
            aval = self._name("aval", self.s.avals[root.variables[0]])
            self.lines.append(f"r{root.number} = allocate({state}, {aval}, {op!r})")
        else:
            self.lines.append(f"r{root.number} = x{root.taken}")
            self.lines.append(f"spent.append({root.taken})")
        self.lines.append(f"{name} = r{root.number}.array")

    def _adopted(self, root: Root, step: Step) -> bool:
        """The output's memory is the library's fresh result itself."""
        return (
            root.kind == "output"
            and root.taken is None
            and isinstance(step.equation.call.op.kernel, Library)
            and root.variables[0] in step.equation.outs
        )

    def _result(self, v: int) -> str:
        """The record of output variable `v`."""
        root = self.s.roots[v]
        aval = self._name("aval", self.s.avals[v])
        if v in self.s.numbers:
            return f"r{self.s.numbers[v].number}"
        record = f"{'x' if root.kind == 'input' else 'r'}{root.number}"
        return (
            f"{record}.derive({self.v(v)}, {aval})" if v in self.s.layouts else record
        )

    # -- kernels -----------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        eq = step.equation
        kernel = eq.call.op.kernel
        match kernel:
            case View():
                self._view(step, kernel)
            case Elementwise():
                self._elementwise(step)
            case Write():
                self._write(step, kernel)
            case Library():
                self._library(step, kernel)
            case Region():
                self._region(step)
            case _:
                raise TypeError(f"no replay of kernel {kernel!r}")

    def _operands(self, step: Step) -> list[str]:
        return [self.v(v) for v in step.equation.operands]

    def _view(self, step: Step, kernel: View) -> None:
        eq = step.equation
        source, out = self.v(eq.ins[0]), self.v(eq.outs[0])
        if eq.outs[0] in self.s.layouts:
            if eq.ins[0] in self._fixed:
                return
            fn, call = self._name("fn", kernel.fn), self._name("call", eq.call)
            targets = ", ".join(f"v{v}" for v in eq.outs)
            self.lines.append(f"{targets} = {fn}({source}, {call})")
            return
        shape = eq.call.ins[0].shape
        if step.copies:
            self.lines.append(
                f"overwrite({out}.reshape({shape}), {source}, {eq.call.op.name!r})"
            )
        else:
            self.lines.append(f"copyto({out}.reshape({shape}), {source})")

    def _elementwise(self, step: Step) -> None:
        eq, plan = step.equation, step.plan
        small = eq.call.out.nbytes < POOLED_FROM
        out = self.v(eq.outs[0])
        over = self._is_over(eq)
        if not small:
            if eq.mode == "into":
                self._add_large(step)
            else:
                self._run(plan.overwrite if over else plan.run, step, out)
            return
        # Registers are in the arena, masks are not.
        self.scratch = max(self.scratch, plan.printed.masks * eq.call.out.size)
        registers = [self.v(v) for v in step.registers]
        if eq.mode == "into":
            target, registers = registers[0], registers[1:]
        else:
            target = out
        inline = plan.printed.inline(
            self._operands(step), target, registers, self._name, aliased=over
        )
        if inline is None:
            self._run(plan.overwrite if over else plan.run, step, target)
        else:
            self.lines += inline
        if eq.mode == "into":
            self.lines.append(f"add({out}, {target}, {out})")

    def _is_over(self, eq: Any) -> bool:
        if eq.mode == "over":
            return True
        root = self.s.roots[eq.outs[0]]
        if eq.mode != "fresh" or not eq.ins:
            return False
        first = self.s.roots[eq.ins[0]]
        return first is root or (
            root.taken is not None
            and root.taken == first.number
            and first.kind == "input"
        )

    def _run(self, fn: Any, step: Step, out: str) -> None:
        name = self._name(getattr(fn, "__name__", "run"), fn)
        self.scratch = max(self.scratch, step.plan.scratch_nbytes)
        self.lines.append(f"{name}({', '.join([*self._operands(step), out])})")

    def _add_large(self, step: Step) -> None:
        self.scratch = max(self.scratch, step.plan.into_nbytes)
        name = self._name("into", step.plan.into)
        operands = ", ".join(
            ["state", *self._operands(step), self.v(step.equation.outs[0])]
        )
        self.lines.append(f"{name}({operands})")

    def _write(self, step: Step, kernel: Write) -> None:
        eq, plan = step.equation, step.plan
        operands = self._operands(step)
        if kernel.check is not None:
            check, call = self._name("check", kernel.check), self._name("call", eq.call)
            self.lines.append(f"{check}({call}, [{', '.join(operands)}])")
        if step.added is not None:
            source, fn = step.added
            name, out = self._name("add", fn), self.v(eq.outs[0])
            self.lines.append(source.format(*operands, f=name, t=out))
            return
        if eq.mode == "into" and (kernel.add is not None or not step.registers):
            self._add_large(step)
            return
        outs = [self.v(v) for v in eq.outs]
        if eq.mode == "into":
            outs = [self.v(step.registers[0])]
        needed = plan.scratch_nbytes + step.layout_nbytes
        self.scratch = max(self.scratch, needed)
        if plan.source is not None:
            value = plan.source.format(*operands).removesuffix(")")
            self.lines.append(f"{value}, {outs[0]})")
        else:
            fn, call = self._name("fn", kernel.fn), self._name("call", eq.call)
            self.lines.append(
                f"{fn}({call}, ({', '.join(outs)},), ({_listed(operands)}))"
            )
        if eq.mode == "into":
            out = self.v(eq.outs[0])
            self.lines.append(f"add({out}, {outs[0]}, {out})")

    def _library(self, step: Step, kernel: Library) -> None:
        eq = step.equation
        fn, call = self._name("fn", kernel.fn), self._name("call", eq.call)
        self.lines.append(f"found = {fn}({', '.join([call, *self._operands(step)])})")
        name = eq.call.op.name
        scratch = step.plan.scratch_nbytes
        for k, v in enumerate(eq.outs):
            root, aval = self.s.roots[v], self.s.avals[v]
            value = "found" if len(eq.outs) == 1 else f"found[{k}]"
            if self._adopted(root, step):
                held = self._name("aval", aval)
                state = _STATES.get(root.reason, "state")
                self.lines.append(
                    f"r{root.number} = adopt({state}, {value}, {held}, {name!r})"
                )
                self.lines.append(f"v{v} = r{root.number}.array")
            else:
                scratch += aval.nbytes
                self.lines.append(f"copyto({self.v(v)}, {value})")
        self.lines.append("found = None")
        self.scratch = max(self.scratch, scratch)

    def _region(self, step: Step) -> None:
        call = step.equation.call
        names = []
        for nested in step.bodies:
            body = BodyWriter(nested.schedule).written()
            self.scratch = max(self.scratch, body.scratch)
            names.append(f"b{len(self.bodies)}")
            self.bodies.append((body, nested.arenas))
        outs = [self.v(v) for v in step.equation.outs]
        spares = [self.v(v) for v in step.registers]
        self.lines += FORMS[call.op.name].lines(
            call, step.layouts, names, self._operands(step), outs, spares
        )


def _listed(operands: list[str]) -> str:
    return "".join(f"{name}, " for name in operands)


class ArrayWriter(Writer):
    """The same over arrays: `x0` is input 0, `o0` the memory of output root 0."""

    def _params(self) -> list[str]:
        s = self.s
        return [
            *[f"x{k}" for k in range(len(s.program.inputs))],
            *[f"o{r.number}" for r in s.outputs if r.taken is None],
        ]

    def _input(self, k: int) -> str:
        return f"x{k}"

    def _output(self, root: Root, op: str, name: str) -> None:
        source = f"o{root.number}" if root.taken is None else f"x{root.taken}"
        self.lines.append(f"{name} = {source}")

    def _adopted(self, root: Root, step: Step) -> bool:
        return False

    def _result(self, v: int) -> str:
        return "None"


class BodyWriter(ArrayWriter):
    """The body of a loop or a branch: `o0` is the memory of the first output."""

    def _params(self) -> list[str]:
        s = self.s
        return [
            *[f"x{k}" for k in range(len(s.program.inputs))],
            *[f"o{s.roots[v].number}" for v in s.program.outputs],
        ]

    def _head(self) -> list[str]:
        return []  # nothing is allocated, and the function outside declares workspace


__all__ = ["ArrayWriter", "Writer"]
