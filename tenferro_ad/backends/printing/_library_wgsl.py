"""Elementary functions for WGSL, from + - * / sqrt floor and bits alone.

WGSL states weak bounds for the elementary functions of `f32`, and implementations that
offer `f64` may have none that are right. So both get their own, with the same text:
reduction of the argument, then a series. NaN and infinities are told by their bits,
because a compiler may assume that there are none, and no formula relies on an order of
additions that a compiler may change.

Sources: W. Cody, W. Waite, "Software manual for the elementary functions" (1980);
M. Payne, R. Hanek, "Radian reduction for trigonometric functions" (1983).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ._library_composed import COMPOSED
from ._polynomials import horner


@dataclass(frozen=True, slots=True)
class _Kind:
    """Facts about one type.

    Attributes:
        ln2, half_pi: pieces whose products with small integers are exact.
        terms: lengths of the series of exp, log and sin.
        limit: arguments of sin up to which `half_pi` reduces exactly.
        top, bottom: arguments of exp with a finite value that is not 0.
        least, up, steps: the least normal number, and a power of 2 that lifts others.
        word, mantissa, bias, ones: the integer with its bits; its fields.
    """

    ln2: tuple[float, float]
    half_pi: tuple[float, float, float]
    terms: tuple[int, int, int]
    limit: float
    top: float
    bottom: float
    least: float
    up: float
    steps: int
    word: str
    mantissa: int
    bias: int
    ones: int


_KINDS: Final = {
    "f32": _Kind(
        ln2=(0.693359375, -2.12194440e-4),
        half_pi=(1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8),
        terms=(8, 5, 6),
        limit=8192.0,
        top=88.72283935546875,
        bottom=-104.0,
        least=1.17549435e-38,
        up=2.0**24,
        steps=24,
        word="u32",
        mantissa=23,
        bias=127,
        ones=0xFF,
    ),
    "f64": _Kind(
        ln2=(6.93147180369123816490e-01, 1.90821492927058770002e-10),
        half_pi=(
            1.57079632673412561417e00,
            6.07710050630396597660e-11,
            2.02226624879595063154e-21,
        ),
        terms=(14, 12, 10),
        limit=2.0**20,
        top=709.782712893384,
        bottom=-745.2,
        least=2.2250738585072014e-308,
        up=2.0**54,
        steps=54,
        word="u64",
        mantissa=52,
        bias=1023,
        ones=0x7FF,
    ),
}


def _bits(kind: str) -> str:
    p = _KINDS[kind]
    bits, mantissa, bias, ones = p.word, p.mantissa, p.bias, p.ones
    tail = "u" if bits == "u32" else "lu"
    top = f"{ones << mantissa}{tail}"
    rest = f"{(1 << (mantissa + ones.bit_length())) - 1}{tail}"
    sign = f"{1 << (mantissa + ones.bit_length())}{tail}"
    fraction = f"{(1 << mantissa) - 1}{tail}"
    one = f"{bias << mantissa}{tail}"
    inf = "bitcast<f32>(inf_bits)" if kind == "f32" else "f64(bitcast<f32>(inf_bits))"
    return f"""
fn cx$(a: T, b: T) -> C {{
  return C(a, b);
}}
fn inf$() -> T {{
  return {inf};
}}
fn nan$() -> T {{
  return bitcast<T>(({bits}({ones}u) << {mantissa}u) | {bits}(nan_bits));
}}
fn isnan$(x: T) -> B {{
  return (bitcast<{bits}>(x) & {rest}) > {top};
}}
fn isinf$(x: T) -> B {{
  return (bitcast<{bits}>(x) & {rest}) == {top};
}}
fn isfinite$(x: T) -> B {{
  return (bitcast<{bits}>(x) & {rest}) < {top};
}}
fn signbit$(x: T) -> B {{
  return (bitcast<{bits}>(x) & {sign}) != {bits}(0);
}}
fn copysign$(x: T, y: T) -> T {{
  return bitcast<T>((bitcast<{bits}>(x) & {rest}) | (bitcast<{bits}>(y) & {sign}));
}}
fn nextafter$(x: T, y: T) -> T {{
  if (isnan$(x) || isnan$(y)) {{ return nan$(); }}
  if (x == y) {{ return y; }}
  if (x == F(0)) {{ return copysign$(bitcast<T>({bits}(1)), y); }}
  if ((y > x) == (x > F(0))) {{ return bitcast<T>(bitcast<{bits}>(x) + {bits}(1)); }}
  return bitcast<T>(bitcast<{bits}>(x) - {bits}(1));
}}
fn exponent$(x: T) -> I {{
  return i32((bitcast<{bits}>(x) & {rest}) >> {mantissa}u) - {bias};
}}
fn fraction$(x: T) -> T {{
  return bitcast<T>((bitcast<{bits}>(x) & {fraction}) | {one});
}}
fn power2$(k: I) -> T {{
  return bitcast<T>({bits}(k + {bias}) << {mantissa}u);
}}
"""


def _far(kind: str) -> str:
    """Reduction by pi / 2 for large arguments: of the bits of 2 / pi those that make no
    whole turn are multiplied with the argument's mantissa, in three words."""
    p = _KINDS[kind]
    word, half = p.word, {"u32": 16, "u64": 32}[p.word]
    size, mask = 2 * half, f"{(1 << half) - 1}{'u' if half == 16 else 'lu'}"
    top = f"{1 << p.mantissa}{'u' if half == 16 else 'lu'}"
    fraction = f"{(1 << p.mantissa) - 1}{'u' if half == 16 else 'lu'}"
    pick = "turns[k]"
    if word == "u64":
        pick = "(u64(turns[2 * k]) << 32u) | u64(turns[2 * k + 1])"
    return f"""
fn turn$(k: I) -> {word} {{
  return {pick};
}}
fn turnbits$(start: I) -> {word} {{
  let k: I = start / {size};
  let by: U = u32(start % {size});
  if (by == 0u) {{ return turn$(k); }}
  return (turn$(k) << by) | (turn$(k + 1) >> ({size}u - by));
}}
fn highpart$(x: {word}, y: {word}) -> {word} {{
  let xl: {word} = x & {mask};
  let xh: {word} = x >> {half}u;
  let yl: {word} = y & {mask};
  let yh: {word} = y >> {half}u;
  let a: {word} = xh * yl + ((xl * yl) >> {half}u);
  let b: {word} = xl * yh + (a & {mask});
  return xh * yh + (a >> {half}u) + (b >> {half}u);
}}
fn reduced$(x: T) -> C {{
  let m: {word} = (bitcast<{word}>(x) & {fraction}) | {top};
  let start: I = exponent$(x) - {p.mantissa} - 2 + {LEAD};
  let a: {word} = turnbits$(start);
  let b: {word} = turnbits$(start + {size});
  let c: {word} = turnbits$(start + {2 * size});
  let low: {word} = b * m;
  let more: {word} = highpart$(c, m);
  let middle: {word} = low + more;
  var carry: {word} = {word}(0);
  if (middle < low) {{ carry = {word}(1); }}
  let high: {word} = a * m + highpart$(b, m) + carry;
  var q: I = i32(high >> {size - 2}u);
  var first: {word} = (high << 2u) | (middle >> {size - 2}u);
  var second: {word} = middle << 2u;
  var sign: T = F({math.pi / 2!r});
  if ((first >> {size - 1}u) == {word}(1)) {{
    q = q + 1;
    sign = -sign;
    second = ~second + {word}(1);
    first = ~first;
    if (second == {word}(0)) {{ first = first + {word}(1); }}
  }}
  let f: T = T(first) * F({2.0**-size!r}) + T(second) * F({2.0 ** (-2 * size)!r});
  return cx$(sign * f, T(q & 3));
}}
"""


def _series(kind: str) -> str:
    p = _KINDS[kind]
    exp, log, sin = p.terms
    hi, lo = p.ln2
    p1, p2, p3 = p.half_pi
    exps = [1 / math.factorial(k) for k in range(exp)]
    logs = [2 / (2 * k + 3) for k in range(log)]
    sines = [(-1) ** (k + 1) / math.factorial(2 * k + 3) for k in range(sin)]
    cosines = [(-1) ** k / math.factorial(2 * k) for k in range(sin + 2)]
    atans = [(-1) ** (k + 1) / (2 * k + 3) for k in range(log)]
    return f"""
fn scaled$(x: T, k: I) -> T {{
  let middle: I = k / 2;
  return x * power2$(middle) * power2$(k - middle);
}}
fn exp$(x: T) -> T {{
  if (isnan$(x)) {{ return x; }}
  if (x > F({p.top!r})) {{ return inf$(); }}
  if (x < F({p.bottom!r})) {{ return F(0); }}
  let k: T = floor$(x * F({1 / math.log(2)!r}) + F(0.5));
  let r: T = (x - k * F({hi!r})) - k * F({lo!r});
  return scaled$({horner(exps, "r")}, i32(k));
}}
fn exp2$(x: T) -> T {{
  if (isnan$(x)) {{ return x; }}
  if (x > F(1100)) {{ return inf$(); }}
  if (x < F(-1100)) {{ return F(0); }}
  let k: T = floor$(x + F(0.5));
  if (k >= F({p.bias + 1})) {{ return inf$(); }}
  if (k < F({-p.bias - p.mantissa})) {{ return F(0); }}
  let r: T = (x - k) * F({math.log(2)!r});
  return scaled$({horner(exps, "r")}, i32(k));
}}
fn expm1$(x: T) -> T {{
  if (abs$(x) < F(0.35)) {{
    return x * {horner([1 / math.factorial(k) for k in range(1, exp)], "x")};
  }}
  return exp$(x) - F(1);
}}
fn log$(x: T) -> T {{
  if (isnan$(x) || x < F(0)) {{ return nan$(); }}
  if (x == F(0)) {{ return -inf$(); }}
  if (isinf$(x)) {{ return x; }}
  var v: T = x;
  var e: I = 0;
  if (x < F({p.least!r})) {{
    v = x * F({p.up!r});
    e = -{p.steps};
  }}
  e = e + exponent$(v);
  var m: T = fraction$(v);
  if (m > F({math.sqrt(2)!r})) {{
    m = m * F(0.5);
    e = e + 1;
  }}
  let f: T = m - F(1);
  let s: T = f / (F(2) + f);
  let z: T = s * s;
  let t: T = {horner(logs, "z")};
  let k: T = T(e);
  return k * F({hi!r}) + ((F(2) * s + s * z * t) + k * F({lo!r}));
}}
fn log1p$(x: T) -> T {{
  if (!(x > F(-0.29) && x < F(0.41))) {{ return log$(F(1) + x); }}
  let s: T = x / (F(2) + x);
  let z: T = s * s;
  return F(2) * s + s * z * {horner(logs, "z")};
}}
fn sincos$(at: T, shift: I) -> T {{
  if (!isfinite$(at)) {{ return nan$(); }}
  if (at == F(0) && shift == 0) {{ return at; }}
  let x: T = abs$(at);
  let k: T = floor$(x * F({2 / math.pi!r}) + F(0.5));
  var r: T = ((x - k * F({p1!r})) - k * F({p2!r})) - k * F({p3!r});
  var q: I = i32(k - F(4) * floor$(k * F(0.25)));
  if (x > F({p.limit!r})) {{
    let far: C = reduced$(x);
    r = far.x;
    q = i32(far.y);
  }}
  if (signbit$(at)) {{
    r = -r;
    q = -q;
  }}
  q = (q + shift) & 3;
  let z: T = r * r;
  var v: T = r + r * z * {horner(sines, "z")};
  if ((q & 1) == 1) {{ v = {horner(cosines, "z")}; }}
  if (q >= 2) {{ return -v; }}
  return v;
}}
fn atan$(x: T) -> T {{
  if (isnan$(x)) {{ return x; }}
  var a: T = abs$(x);
  var start: T = F(0);
  var turn: T = F(1);
  if (a > F(1)) {{
    a = F(1) / a;
    start = F({math.pi / 2!r});
    turn = F(-1);
  }}
  let y: T = a / (F(1) + sqrt$(F(1) + a * a));
  let w: T = y / (F(1) + sqrt$(F(1) + y * y));
  let z: T = w * w;
  let found: T = F(4) * (w + w * z * {horner(atans, "z")});
  return copysign$(start + turn * found, x);
}}
"""


LEAD: Final = 64
ELEMENTARY: Final = {
    kind: _bits(kind) + _far(kind) + _series(kind) + COMPOSED for kind in _KINDS
}


def _turns() -> str:
    """The bits of 2 / pi behind `LEAD` zeros, as an array of 32-bit words."""
    count, guard = 42, 64
    bits = 32 * count + guard
    one = 1 << bits

    def arctan(k: int) -> int:  # of 1 / k
        total, power, n = 0, one // k, 1
        while power:
            total += power // n if n % 4 == 1 else -(power // n)
            power //= k * k
            n += 2
        return total

    pi = 4 * (4 * arctan(5) - arctan(239))
    value = (2 * one * one // pi) >> (guard + LEAD)
    words = [(value >> (32 * (count - 1 - k))) & 0xFFFFFFFF for k in range(count)]
    listed = ", ".join(f"{w}u" for w in words)
    kind = f"array<u32, {count}>"
    return f"var<private> turns: {kind} = {kind}({listed});\n"


TURNS: Final = _turns()
