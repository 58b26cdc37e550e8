"""Real functions that no language has with NumPy's meaning."""

from typing import Final

REAL: Final = """
fn maximum$(x: T, y: T) -> T {
  if (x >= y || isnan$(x)) { return x; }
  return y;
}
fn minimum$(x: T, y: T) -> T {
  if (x <= y || isnan$(x)) { return x; }
  return y;
}
fn relu$(x: T) -> T {
  return maximum$(x, F(0));
}
fn sign$(x: T) -> T {
  if (x > F(0)) { return F(1); }
  if (x < F(0)) { return F(-1); }
  if (x == F(0)) { return F(0); }
  return x;
}
fn angle$(x: T) -> T {
  return atan2$(F(0), x);
}
fn reciprocal$(x: T) -> T {
  return F(1) / x;
}
fn rsqrt$(x: T) -> T {
  return F(1) / sqrt$(x);
}
fn floor_divide$(x: T, y: T) -> T {
  if (y == F(0)) { return x / y; }
  let left: T = fmod$(x, y);
  var q: T = (x - left) / y;
  if (left != F(0) && ((left < F(0)) != (y < F(0)))) { q = q - F(1); }
  if (q == F(0)) { return copysign$(F(0), x / y); }
  let down: T = floor$(q);
  if (q - down > F(0.5)) { return down + F(1); }
  return down;
}
fn remainder$(x: T, y: T) -> T {
  let left: T = fmod$(x, y);
  if (left == F(0)) { return copysign$(F(0), y); }
  if ((left < F(0)) != (y < F(0))) { return left + y; }
  return left;
}
fn logaddexp$(x: T, y: T) -> T {
  if (x == y) { return x + F(0.6931471805599453); }
  let d: T = x - y;
  if (d > F(0)) { return x + log1p$(exp$(-d)); }
  if (d <= F(0)) { return y + log1p$(exp$(d)); }
  return d;
}
fn sigmoid$(x: T) -> T {
  let e: T = exp$(-abs$(x));
  if (x < F(0)) { return e / (F(1) + e); }
  return F(1) / (F(1) + e);
}
fn softplus$(x: T) -> T {
  return logaddexp$(F(0), x);
}
fn nexthalf$(x: T, y: T) -> T {
  if (isnan$(x) || isnan$(y)) { return nan$(); }
  if (x == y) { return y; }
  if (x == F(0)) { return copysign$(F(5.9604644775390625e-08), y); }
  let a: T = abs$(x);
  if (isinf$(x)) { return copysign$(F(65504), x); }
  var step: T = F(5.9604644775390625e-08);
  var above: T = F(0.0001220703125);
  while (a >= above) {
    step = step * F(2);
    above = above * F(2);
  }
  if ((y > x) == (x > F(0))) {
    if (a == F(65504)) { return copysign$(inf$(), x); }
    return copysign$(a + step, x);
  }
  if (F(2) * a == above && a > F(6.103515625e-05)) { step = step * F(0.5); }
  return copysign$(a - step, x);
}
fn szmul$(x: T, y: T) -> T {
  if (x == F(0) || y == F(0)) { return F(0); }
  return x * y;
}
fn szfactor$(x: T, y: T) -> T {
  if (x == F(0) && !isfinite$(y)) { return F(0); }
  return y;
}
fn szgate$(x: T, y: T, z: T) -> T {
  if (x == F(0) && !isfinite$(y)) { return F(0); }
  return z;
}
"""
