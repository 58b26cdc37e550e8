"""Elementary functions for WGSL, from + - * / sqrt floor and bits alone.

WGSL states weak bounds for the elementary functions of `f32`, and implementations that
offer `f64` may have none that are right. So both get their own, with the same text:
reduction of the argument, then a series. NaN and infinities are told by their bits,
because a compiler may assume that there are none. Arguments of `sin` and `cos` beyond
2**30 (`f64`) or 2**15 (`f32`) are first reduced by a rounded 2 pi.

Source: W. Cody, W. Waite, "Software manual for the elementary functions" (1980).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

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
        limit=32768.0,
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
        limit=2.0**30,
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
fn quadrant$(x: T) -> T {{
  return floor$(x * F({2 / math.pi!r}) + F(0.5));
}}
fn reduced$(x: T, k: T) -> T {{
  return ((x - k * F({p1!r})) - k * F({p2!r})) - k * F({p3!r});
}}
fn sincos$(at: T, shift: I) -> T {{
  if (!isfinite$(at)) {{ return nan$(); }}
  var x: T = at;
  if (abs$(x) > F({p.limit!r})) {{ x = fmod$(x, F({2 * math.pi!r})); }}
  let k: T = quadrant$(x);
  let r: T = reduced$(x, k);
  let z: T = r * r;
  let q: I = (i32(k - F(4) * floor$(k * F(0.25))) + shift) & 3;
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


_COMMON: Final = """
fn fmod$(x: T, y: T) -> T {
  if (!isfinite$(x) || y == F(0) || isnan$(y)) { return nan$(); }
  var r: T = abs$(x);
  let d: T = abs$(y);
  while (r >= d) {
    var t: T = d;
    while (t + t <= r) { t = t + t; }
    r = r - t;
  }
  return copysign$(r, x);
}
fn log1p$(x: T) -> T {
  let u: T = F(1) + x;
  if (u == F(1)) { return x; }
  if (u <= F(0) || !isfinite$(u)) { return log$(u); }
  return log$(u) * (x / (u - F(1)));
}
fn log2$(x: T) -> T {
  return log$(x) * F(1.4426950408889634);
}
fn log10$(x: T) -> T {
  return log$(x) * F(0.4342944819032518);
}
fn sin$(x: T) -> T {
  return sincos$(x, 0);
}
fn cos$(x: T) -> T {
  return sincos$(x, 1);
}
fn tan$(x: T) -> T {
  return sincos$(x, 0) / sincos$(x, 1);
}
fn asin$(x: T) -> T {
  if (!(abs$(x) <= F(1))) { return nan$(); }
  if (abs$(x) == F(1)) { return copysign$(F(1.5707963267948966), x); }
  return atan$(x / sqrt$((F(1) - x) * (F(1) + x)));
}
fn acos$(x: T) -> T {
  if (!(abs$(x) <= F(1))) { return nan$(); }
  return F(2) * atan2$(sqrt$(F(1) - x), sqrt$(F(1) + x));
}
fn atan2$(y: T, x: T) -> T {
  if (isnan$(x) || isnan$(y)) { return nan$(); }
  let a: T = abs$(x);
  let b: T = abs$(y);
  var found: T = F(0);
  if (isinf$(a) && isinf$(b)) {
    found = F(0.7853981633974483);
  } else if (b > a) {
    found = F(1.5707963267948966) - atan$(a / b);
  } else if (a > F(0)) {
    found = atan$(b / a);
  }
  if (signbit$(x)) { found = F(3.141592653589793) - found; }
  return copysign$(found, y);
}
fn sinh$(x: T) -> T {
  let a: T = abs$(x);
  if (a > F(40)) {
    let h: T = exp$(F(0.5) * a);
    return copysign$((F(0.5) * h) * h, x);
  }
  let e: T = expm1$(a);
  return copysign$(F(0.5) * (e + e / (e + F(1))), x);
}
fn cosh$(x: T) -> T {
  let a: T = abs$(x);
  let h: T = exp$(F(0.5) * a);
  if (a > F(40)) { return (F(0.5) * h) * h; }
  let e: T = exp$(a);
  return F(0.5) * (e + F(1) / e);
}
fn tanh$(x: T) -> T {
  let a: T = abs$(x);
  if (a > F(25)) { return copysign$(F(1), x); }
  let e: T = expm1$(F(-2) * a);
  return copysign$(-e / (F(2) + e), x);
}
fn asinh$(x: T) -> T {
  let a: T = abs$(x);
  if (a > F(1e8)) { return copysign$(log$(a) + F(0.6931471805599453), x); }
  let s: T = a * a;
  return copysign$(log1p$(a + s / (F(1) + sqrt$(s + F(1)))), x);
}
fn acosh$(x: T) -> T {
  if (!(x >= F(1))) { return nan$(); }
  if (x > F(1e8)) { return log$(x) + F(0.6931471805599453); }
  let t: T = x - F(1);
  return log1p$(t + sqrt$(F(2) * t + t * t));
}
fn atanh$(x: T) -> T {
  let a: T = abs$(x);
  if (!(a <= F(1))) { return nan$(); }
  if (a == F(1)) { return copysign$(inf$(), x); }
  return copysign$(F(0.5) * log1p$(F(2) * a / (F(1) - a)), x);
}
fn cbrt$(x: T) -> T {
  let a: T = abs$(x);
  if (a == F(0) || !isfinite$(x)) { return x; }
  var y: T = exp$(log$(a) * F(0.3333333333333333));
  y = y - (y - a / (y * y)) * F(0.3333333333333333);
  y = y - (y - a / (y * y)) * F(0.3333333333333333);
  return copysign$(y, x);
}
fn hypot$(x: T, y: T) -> T {
  let a: T = abs$(x);
  let b: T = abs$(y);
  if (isinf$(a) || isinf$(b)) { return inf$(); }
  if (isnan$(a) || isnan$(b)) { return nan$(); }
  if (a == F(0)) { return b; }
  if (b == F(0)) { return a; }
  if (a < b) {
    let q: T = a / b;
    return b * sqrt$(F(1) + q * q);
  }
  let r: T = b / a;
  return a * sqrt$(F(1) + r * r);
}
fn pow$(x: T, y: T) -> T {
  if (y == F(0) || x == F(1)) { return F(1); }
  if (isnan$(x) || isnan$(y)) { return nan$(); }
  let a: T = abs$(x);
  let whole: B = floor$(y) == y && isfinite$(y);
  let odd: B = whole && (y - F(2) * floor$(y * F(0.5)) == F(1));
  if (signbit$(x) && a > F(0) && isfinite$(x) && isfinite$(y) && !whole) {
    return nan$();
  }
  var found: T = F(1);
  if (whole && abs$(y) <= F(64)) {
    var base: T = a;
    var left: I = i32(abs$(y));
    while (left > 0) {
      if ((left & 1) == 1) { found = found * base; }
      base = base * base;
      left = left >> 1u;
    }
    if (y < F(0)) { found = F(1) / found; }
    if (a == F(0) && y < F(0)) { found = inf$(); }
  } else if (a == F(0)) {
    found = F(0);
    if (y < F(0)) { found = inf$(); }
  } else {
    if (a != F(1)) { found = exp$(y * log$(a)); }
  }
  if (odd && signbit$(x)) { return -found; }
  return found;
}
fn erf$(x: T) -> T {
  let a: T = abs$(x);
  if (isnan$(x)) { return x; }
  if (a > F(1.5)) { return copysign$(F(1) - erfc_right$(a), x); }
  let s: T = x * x;
  var term: T = x;
  var total: T = x;
  for (var k: I = 1; k < 40; k = k + 1) {
    term = term * (-s / T(k));
    total = total + term / T(2 * k + 1);
  }
  return total * F(1.1283791670955126);
}
fn erfc$(x: T) -> T {
  if (isnan$(x)) { return x; }
  if (x < F(0.5)) {
    if (x < F(-1.5)) { return F(2) - erfc_right$(-x); }
    return F(1) - erf$(x);
  }
  return erfc_right$(x);
}
fn erfc_right$(x: T) -> T {
  if (x > F(30)) { return F(0); }
  return exp$(-x * x) * erfcxright$(x);
}
"""

ELEMENTARY: Final = {kind: _bits(kind) + _series(kind) + _COMMON for kind in _KINDS}
