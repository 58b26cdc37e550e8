"""WGSL."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ._dialects import (
    BOOL,
    DOUBLE,
    HALF,
    SINGLE,
    Dialect,
    Dtype,
    bounded,
    computed,
    functions,
    parts_of,
    real_text,
    type_name,
)
from ._library_wgsl import ELEMENTARY, TURNS

_OWN: Final = {kind: functions(text) for kind, text in ELEMENTARY.items()}
_NATIVE: Final = "abs sqrt floor ceil trunc round".split()
_HEAD: Final = """\
alias ix = i32;
alias cf = vec2<f32>;
var<private> inf_bits: u32 = 0x7f800000u;
var<private> nan_bits: u32 = 1u;
"""
_WORD: Final = re.compile(r"\bw(\d+)\b")
_PAIR: Final = "alias cd = vec2<f64>;\n"


class WgslDialect(Dialect):
    name = "webgpu"
    tile = (4, 8)
    binds_once = True
    unrolls = True  # compilers keep arrays in memory, behind checks of their indices
    builtins: ClassVar[dict[str, str]] = {name: name for name in _NATIVE}

    def let(self, dtype: Dtype, name: str, value: str) -> str:
        return f"let {name}: {type_name(dtype)} = {value};"

    def variable(self, dtype: Dtype, name: str, value: str) -> str:
        return f"var {name}: {type_name(dtype)} = {value};"

    def block(self, dtype: Dtype, name: str, size: int) -> str:
        return f"var {name}: array<{type_name(dtype)}, {size}>;"

    def loop(self, name: str, first: str, end: str, step: str) -> str:
        return f"for (var {name}: ix = {first}; {name} < {end}; {name} += {step}) {{"

    def literal(self, value: Any, dtype: Dtype) -> str:
        value = bounded(value, dtype)
        if dtype == BOOL:
            return "true" if value else "false"
        if dtype.kind == "c":
            z, half = parts_of(value, dtype)
            parts = f"{self.literal(z.real, half)}, {self.literal(z.imag, half)}"
            return f"{type_name(dtype)}({parts})"
        if dtype.kind == "f":
            return self._real(float(value), computed(dtype))
        n = int(value)
        tail = {"i32": "i", "u32": "u", "i64": "li", "u64": "lu"}[type_name(dtype)]
        if n == -(1 << (8 * dtype.itemsize - 1)):
            return f"({n + 1}{tail} - 1{tail})"
        return f"({n}{tail})" if n < 0 else f"{n}{tail}"

    def _real(self, value: float, dtype: Dtype) -> str:
        if math.isnan(value):
            bits = "bitcast<f32>(inf_bits | nan_bits)"
            return bits if dtype == SINGLE else f"f64({bits})"
        if math.isinf(value):
            bits = "bitcast<f32>(inf_bits)"
            bits = bits if dtype == SINGLE else f"f64({bits})"
            return bits if value > 0 else f"(-{bits})"
        text = real_text(value, dtype) + ("lf" if dtype == DOUBLE else "f")
        return f"({text})" if text.startswith("-") else text

    def cast(self, code: str, source: Dtype, target: Dtype) -> str:
        a, b = type_name(source), type_name(target)
        if a == b:
            return code
        if source.kind == "c" and target.kind == "c":
            return f"{b}({code})"
        if source.kind == "c":
            if target == BOOL:
                zero = self.literal(0, parts_of(0, source)[1])
                return f"!({code}.x == {zero} && {code}.y == {zero})"
            return self.cast(f"{code}.x", parts_of(0, source)[1], target)
        if target.kind == "c":
            half = parts_of(0, target)[1]
            zero = self.literal(0, half)
            return f"{b}({self.cast(code, source, half)}, {zero})"
        if target == BOOL:
            return f"!({code} == {self.literal(0, source)})"
        if source == BOOL:
            one, zero = (self.literal(n, target) for n in (1, 0))
            return f"select({zero}, {one}, {code})"
        return f"{b}({code})"

    def select(self, condition: str, a: str, b: str) -> str:
        return f"select({b}, {a}, {condition})"

    def load(self, array: str, at: str, dtype: Dtype) -> str:
        if dtype == BOOL:
            return f"({array}[{at}] != 0u)"
        return f"f32({array}[{at}])" if dtype == HALF else f"{array}[{at}]"

    def store(self, array: str, at: str, value: str, dtype: Dtype) -> str:
        if dtype == BOOL:
            value = f"select(0u, 1u, {value})"
        value = f"f16({value})" if dtype == HALF else value
        return f"{array}[{at}] = {value};"

    def param(self, word: int) -> str:
        return f"w{word}"

    def number(self, word: int, dtype: Dtype, wide: bool) -> str:
        dtype = computed(dtype)
        if dtype.kind == "c":
            half = parts_of(0, dtype)[1]
            step = half.itemsize // 4
            parts = [self.number(word + k * step, half, wide) for k in (0, 1)]
            return f"{type_name(dtype)}({', '.join(parts)})"
        if dtype == BOOL:
            return f"((P[{word}] & 1i) != 0i)"
        if dtype.itemsize == 8:
            low, high = (f"u64(bitcast<u32>(P[{word + k}]))" for k in (0, 1))
            return f"bitcast<{type_name(dtype)}>(({high} << 32u) | {low})"
        return f"bitcast<{type_name(dtype)}>(P[{word}])"

    def storage(self, dtype: Dtype) -> str:
        if dtype == HALF:
            return "f16"
        return "u32" if dtype == BOOL else type_name(dtype)

    def kernel(
        self,
        entry: str,
        arrays: Sequence[tuple[str, Dtype, bool]],
        words: int,
        index: Dtype,
        body: Sequence[str],
        library: str,
    ) -> str:
        bound = [
            (name, self.storage(dtype), "read_write" if written else "read")
            for name, dtype, written in arrays
        ]
        bound.append(("P", "i32", "read"))
        lines = [
            f"@group(0) @binding({k}) var<storage, {mode}> {name}: array<{kind}>;"
            for k, (name, kind, mode) in enumerate(bound)
        ]
        head = "enable f16;\n" if any(d == HALF for _, d, _ in arrays) else ""
        text = "\n".join([*lines, library, *body])
        pair = _PAIR if re.search(r"\bcd\b", text) else ""
        pair += TURNS if "turns[" in text else ""
        # Read once: a compiler cannot know that no store changes them.
        used = sorted({int(n) for n in _WORD.findall("\n".join(body))})
        return "\n".join(
            [
                head + _HEAD + pair + "\n".join(lines),
                library,
                f"@compute @workgroup_size({self.group})",
                f"fn {entry}(@builtin(global_invocation_id) g: vec3<u32>,",
                "    @builtin(num_workgroups) groups: vec3<u32>) {",
                f"    let gid: ix = i32(g.x + g.y * groups.x * {self.group}u);",
                *(f"    let w{word}: ix = P[{word}];" for word in used),
                *("    " + line for line in body),
                "}",
                "",
            ]
        )

    def function(self, text: str) -> str:
        return text

    def own_functions(self, dtype: Dtype) -> Mapping[str, str]:
        return _OWN.get(type_name(dtype), {})
