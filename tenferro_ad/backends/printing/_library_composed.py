"""Elementary functions composed of others, for WGSL.

What is made of `exp`, `log`, `sin`, `cos` and `atan` (`_library_wgsl`) without losing
digits where a textbook formula would cancel.

Source: NIST Digital Library of Mathematical Functions, chapters 4 and 7.
"""

from typing import Final

COMPOSED: Final = """
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
  if (isnan$(x) || x == F(0)) { return x; }
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
