"""OpenCL C and CUDA C."""

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
    parts_of,
    real_text,
    type_name,
)

_SAME_NAMES: Final = (
    "exp expm1 exp2 log log1p log2 log10 sqrt cbrt sin cos tan asin acos atan atan2 "
    "sinh cosh tanh asinh acosh atanh hypot erf erfc pow floor ceil trunc copysign "
    "nextafter isnan isinf isfinite signbit fmod"
)
_MATH: Final = {n: n for n in _SAME_NAMES.split()} | {"abs": "fabs", "round": "rint"}

_SIGNATURE: Final = re.compile(r"fn (\w+)\(([^)]*)\) -> (\w+) \{")
_DECLARED: Final = re.compile(r"\b(let|var) (\w+): (\w+) =")
_CONVERTED: Final = re.compile(r"\b(i8|i16|i32|i64|u8|u16|u32|u64|f32|f64)\(")


class CDialect(Dialect):
    """What OpenCL C and CUDA C have in common."""

    builtins: ClassVar[dict[str, str]] = _MATH
    macros = frozenset({"cx", "inf", "nan"})

    def let(self, dtype: Dtype, name: str, value: str) -> str:
        return f"const {type_name(dtype)} {name} = {value};"

    def variable(self, dtype: Dtype, name: str, value: str) -> str:
        return f"{type_name(dtype)} {name} = {value};"

    def block(self, dtype: Dtype, name: str, size: int) -> str:
        return f"{type_name(dtype)} {name}[{size}];"

    def loop(self, name: str, first: str, end: str, step: str) -> str:
        return f"for (ix {name} = {first}; {name} < {end}; {name} += {step}) {{"

    def literal(self, value: Any, dtype: Dtype) -> str:
        value = bounded(value, dtype)
        if dtype == BOOL:
            return "true" if value else "false"
        if dtype.kind == "c":
            z, half = parts_of(value, dtype)
            parts = f"{self.literal(z.real, half)}, {self.literal(z.imag, half)}"
            return f"cx_{'f' if half.itemsize == 4 else 'd'}({parts})"
        if dtype.kind == "f":
            return self._real(float(value), computed(dtype))
        n = int(value)
        if dtype.kind == "u":
            return f"{n}{'UL' if dtype.itemsize == 8 else 'u'}"
        tail = "L" if dtype.itemsize == 8 else ""
        if n == -(1 << (8 * dtype.itemsize - 1)):
            return f"({n + 1}{tail} - 1)"
        return f"({n}{tail})" if n < 0 else f"{n}{tail}"

    def _real(self, value: float, dtype: Dtype) -> str:
        name = type_name(dtype)
        if math.isnan(value):
            return f"(({name})NAN)"
        if math.isinf(value):
            return f"(({name})INFINITY)" if value > 0 else f"(-({name})INFINITY)"
        text = real_text(value, dtype) + ("" if dtype == DOUBLE else "f")
        return f"({text})" if text.startswith("-") else text

    def cast(self, code: str, source: Dtype, target: Dtype) -> str:
        a, b = type_name(source), type_name(target)
        if a == b:
            return code
        if source.kind == "c" and target.kind == "c":
            half = "f32" if b == "cf" else "f64"
            return f"cx_{b[1]}(({half}){code}.x, ({half}){code}.y)"
        if source.kind == "c":
            if target == BOOL:
                return f"({code}.x != 0 || {code}.y != 0)"
            return f"(({b}){code}.x)"
        if target.kind == "c":
            half = "f32" if b == "cf" else "f64"
            return f"cx_{b[1]}(({half}){code}, 0)"
        if target == BOOL:
            return f"({code} != 0)"
        return f"(({b}){code})"

    def select(self, condition: str, a: str, b: str) -> str:
        return f"({condition} ? {a} : {b})"

    def load(self, array: str, at: str, dtype: Dtype) -> str:
        return f"({array}[{at}] != 0)" if dtype == BOOL else f"{array}[{at}]"

    def store(self, array: str, at: str, value: str, dtype: Dtype) -> str:
        return f"{array}[{at}] = {value};"

    def param(self, word: int) -> str:
        return f"p.v[{word}]"

    def number(self, word: int, dtype: Dtype, wide: bool) -> str:
        dtype = computed(dtype)
        if dtype.kind == "c":
            size = dtype.itemsize // 2
            if wide and size == 4:  # both parts in one word
                parts = [f"p.v[{word}]", f"(p.v[{word}] >> 32)"]
                return f"cx_f({', '.join(self.from_bits(x, 4) for x in parts)})"
            step = 1 if wide else size // 4
            half = SINGLE if size == 4 else DOUBLE
            parts = [self.number(word + k * step, half, wide) for k in (0, 1)]
            return f"cx_{'f' if size == 4 else 'd'}({', '.join(parts)})"
        bits = f"p.v[{word}]"
        if dtype.itemsize == 8 and not wide:
            bits = f"(((u64)(u32)p.v[{word + 1}] << 32) | (u64)(u32)p.v[{word}])"
        if dtype.kind == "f":
            return self.from_bits(bits, dtype.itemsize)
        if dtype == BOOL:
            return f"(({bits} & 1) != 0)"
        return f"(({type_name(dtype)}){bits})"

    def from_bits(self, bits: str, size: int) -> str:
        """A floating number from an integer with its bits."""
        raise NotImplementedError

    def storage(self, dtype: Dtype) -> str:
        return "u8" if dtype == BOOL else type_name(dtype)

    def function(self, text: str) -> str:
        text = _SIGNATURE.sub(self._signature, text)
        text = _DECLARED.sub(
            lambda m: f"{'const ' if m[1] == 'let' else ''}{m[3]} {m[2]} =", text
        )
        return _CONVERTED.sub(r"(\1)(", text)

    def wrapping(self, text: str, dtype: Dtype) -> str:
        wide = "u64" if dtype.itemsize == 8 else "u32"

        def unsigned(m: re.Match[str]) -> str:
            inner = re.sub(r"\b(x|y|N\(0\))(?=[ ;]|$)", rf"{wide}(\1)", m[1])
            return f"return T({inner});"

        return re.sub(r"return (.*);", unsigned, text)

    def _signature(self, m: re.Match[str]) -> str:
        args = [a.split(": ") for a in m[2].split(", ")] if m[2] else []
        listed = ", ".join(f"{t} {n}" for n, t in args)
        return f"{self.inline} {m[3]} {m[1]}({listed or 'void'}) {{"

    inline: ClassVar[str]

    def _program(
        self,
        head: str,
        index: Dtype,
        words: int,
        library: str,
        signature: str,
        gid: str,
        body: Sequence[str],
    ) -> str:
        lines = [head.rstrip(), f"typedef {type_name(index)} ix;"]
        if words:
            lines.append(f"typedef struct {{ ix v[{words}]; }} Params;")
        lines += [library, f"{signature} {{", f"    const ix gid = {gid};"]
        return "\n".join([*lines, *("    " + line for line in body), "}", ""])


_OPENCL_HEAD: Final = """\
typedef char i8; typedef uchar u8; typedef short i16; typedef ushort u16;
typedef int i32; typedef uint u32; typedef long i64; typedef ulong u64;
typedef float f32; typedef float2 cf;
#define cx_f(a, b) ((float2)((a), (b)))
#define inf_f() ((f32)INFINITY)
#define nan_f() ((f32)NAN)
"""
_OPENCL_DOUBLE: Final = """\
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double f64; typedef double2 cd;
#define cx_d(a, b) ((double2)((a), (b)))
#define inf_d() ((f64)INFINITY)
#define nan_d() ((f64)NAN)
"""
_USES_DOUBLE: Final = re.compile(r"\b(f64|cd)\b|_d\(")


# The language's own function: Oclgrind does not know what a comparison becomes.
_ABS: Final = {"abs": "fn abs$(x: T) -> T {\n  return T(abs(x));\n}\n"}


class OpenCLDialect(CDialect):
    name = "opencl"
    inline = "static"
    tile = (4, 16)

    def own_functions(self, dtype: Dtype) -> Mapping[str, str]:
        return _ABS if dtype.kind == "i" else {}

    def load(self, array: str, at: str, dtype: Dtype) -> str:
        if dtype == HALF:
            return f"vload_half({at}, {array})"
        return super().load(array, at, dtype)

    def store(self, array: str, at: str, value: str, dtype: Dtype) -> str:
        if dtype == HALF:
            return f"vstore_half({value}, {at}, {array});"
        return super().store(array, at, value, dtype)

    def from_bits(self, bits: str, size: int) -> str:
        return f"as_double({bits})" if size == 8 else f"as_float((i32){bits})"

    def storage(self, dtype: Dtype) -> str:
        return "half" if dtype == HALF else super().storage(dtype)

    def kernel(
        self,
        entry: str,
        arrays: Sequence[tuple[str, Dtype, bool]],
        words: int,
        index: Dtype,
        body: Sequence[str],
        library: str,
    ) -> str:
        args = [
            f"__global {'' if written else 'const '}{self.storage(dtype)} *{name}"
            for name, dtype, written in arrays
        ]
        args += ["const Params p"] if words else []
        signature = f"__kernel void {entry}({', '.join(args)})"
        text = "\n".join([signature, library, *body])
        head = _OPENCL_HEAD
        if _USES_DOUBLE.search(text):
            head = _OPENCL_DOUBLE + head
        gid = "(ix)get_global_id(0)"
        return self._program(head, index, words, library, signature, gid, body)


_CUDA_HEAD: Final = """\
typedef signed char i8; typedef unsigned char u8; typedef short i16;
typedef unsigned short u16; typedef int i32; typedef unsigned int u32;
typedef long long i64; typedef unsigned long long u64;
typedef float f32; typedef float2 cf; typedef double f64; typedef double2 cd;
#define cx_f(a, b) make_float2((a), (b))
#define cx_d(a, b) make_double2((a), (b))
#undef NAN
#undef INFINITY
#define NAN __int_as_float(0x7fc00000)
#define INFINITY __int_as_float(0x7f800000)
#define inf_f() INFINITY
#define nan_f() NAN
#define inf_d() ((f64)INFINITY)
#define nan_d() ((f64)NAN)
static __device__ __forceinline__ f32 from_half(u16 h) {
    f32 x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h)); return x; }
static __device__ __forceinline__ u16 to_half(f32 x) {
    u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h; }
"""


class CudaDialect(CDialect):
    name = "cuda"
    group = 128
    inline = "static __device__ __forceinline__"
    tile = (4, 8)
    least_blocks = 2048  # a card hides waits for memory behind other invocations

    def load(self, array: str, at: str, dtype: Dtype) -> str:
        if dtype == HALF:
            return f"from_half({array}[{at}])"
        return super().load(array, at, dtype)

    def store(self, array: str, at: str, value: str, dtype: Dtype) -> str:
        value = f"to_half({value})" if dtype == HALF else value
        return super().store(array, at, value, dtype)

    def from_bits(self, bits: str, size: int) -> str:
        name = "__longlong_as_double((i64)" if size == 8 else "__int_as_float((i32)"
        return f"{name}{bits})"

    def storage(self, dtype: Dtype) -> str:
        return "u16" if dtype == HALF else super().storage(dtype)

    def kernel(
        self,
        entry: str,
        arrays: Sequence[tuple[str, Dtype, bool]],
        words: int,
        index: Dtype,
        body: Sequence[str],
        library: str,
    ) -> str:
        args = [
            f"{'' if written else 'const '}{self.storage(dtype)} *{name}"
            for name, dtype, written in arrays
        ]
        args += ["const Params p"] if words else []
        signature = f'extern "C" __global__ void {entry}({", ".join(args)})'
        gid = "(ix)blockIdx.x * (ix)blockDim.x + (ix)threadIdx.x"
        return self._program(_CUDA_HEAD, index, words, library, signature, gid, body)
