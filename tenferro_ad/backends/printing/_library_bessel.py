"""Bessel functions of real order.

Sources: NIST Digital Library of Mathematical Functions, chapter 10: power series,
Hankel's expansion for large arguments, and Miller's backward recurrence with Neumann's
sum (10.23.15) in between.

Each function stands at one place in what calls it, if need be in a loop: compilers of
shaders write calls out, and a copy more is a copy of everything below it.
"""

from typing import Final

BESSELS: Final = """
fn besselfactor$(v: T, x: T) -> T {
  if (abs$(v) < F(25)) { return pow$(F(0.5) * x, v) / gamma$(v + F(1)); }
  return exp$(v * log$(F(0.5) * x) - gammaln$(v + F(1)));
}
fn isodd$(v: T) -> B {
  return v - F(2) * floor$(v * F(0.5)) == F(1);
}
fn ivseries$(v: T, x: T) -> T {
  let q: T = F(0.25) * x * x;
  var term: T = F(1);
  var total: T = F(1);
  for (var k: I = 1; k < 2000; k = k + 1) {
    term = term * (q / (T(k) * (v + T(k))));
    total = total + term;
    if (abs$(term) <= abs$(total) * F(1e-17)) { break; }
  }
  return total;
}
fn ivasymptotic$(v: T, x: T) -> T {
  let m: T = F(4) * v * v;
  var term: T = F(1);
  var total: T = F(1);
  var last: T = F(1);
  for (var k: I = 1; k < 100; k = k + 1) {
    let odd: T = T(2 * k - 1);
    term = -term * (m - odd * odd) / (T(k) * F(8) * x);
    if (abs$(term) > last || abs$(term) <= F(1e-17)) { break; }
    last = abs$(term);
    total = total + term;
  }
  return total * F(0.3989422804014327) / sqrt$(x);
}
fn ivscaled$(order: T, arg: T, scaled: B) -> T {
  var v: T = order;
  let x: T = abs$(arg);
  if (isnan$(v) || isnan$(arg)) { return v + arg; }
  let whole: B = v == floor$(v);
  if (whole) { v = abs$(v); }
  var sign: T = F(1);
  if (arg < F(0)) {
    if (!whole) { return nan$(); }
    if (isodd$(v)) { sign = F(-1); }
  }
  if (x == F(0)) {
    if (v == F(0)) { return F(1); }
    if (v > F(0)) { return F(0); }
    return inf$();
  }
  if (x > F(30) && x > v * v) {
    let found: T = ivasymptotic$(v, x);
    if (scaled) { return sign * found; }
    return sign * found * exp$(x);
  }
  let found: T = besselfactor$(v, x) * ivseries$(v, x);
  if (scaled) { return sign * found * exp$(-x); }
  return sign * found;
}
fn iv$(v: T, x: T) -> T {
  return ivscaled$(v, x, false);
}
fn ive$(v: T, x: T) -> T {
  return ivscaled$(v, x, true);
}
fn i0$(x: T) -> T {
  return ivscaled$(F(0), x, false);
}
fn i1$(x: T) -> T {
  return ivscaled$(F(1), x, false);
}
fn i0e$(x: T) -> T {
  return ivscaled$(F(0), x, true);
}
fn i1e$(x: T) -> T {
  return ivscaled$(F(1), x, true);
}
fn jvasymptotic$(v: T, x: T) -> T {
  let m: T = F(4) * v * v;
  var term: T = F(1);
  var even: T = F(1);
  var odd: T = F(0);
  var last: T = F(1);
  for (var k: I = 1; k < 100; k = k + 1) {
    let n: T = T(2 * k - 1);
    term = term * (m - n * n) / (T(k) * F(8) * x);
    if (abs$(term) > last || abs$(term) <= F(1e-17)) { break; }
    last = abs$(term);
    let turn: I = k & 3;
    if (turn == 1) { odd = odd + term; }
    if (turn == 2) { even = even - term; }
    if (turn == 3) { odd = odd - term; }
    if (turn == 0) { even = even + term; }
  }
  let middle: T = F(0.5) * v + F(0.25);
  let turns: T = middle - F(2) * floor$(middle * F(0.5));
  let shift: T = turns * F(3.141592653589793);
  let c: T = cos$(x) * cos$(shift) + sin$(x) * sin$(shift);
  let s: T = sin$(x) * cos$(shift) - cos$(x) * sin$(shift);
  return sqrt$(F(0.6366197723675814) / x) * (even * c - odd * s);
}
fn jvseries$(v: T, x: T) -> T {
  let q: T = F(-0.25) * x * x;
  var term: T = F(1);
  var total: T = F(1);
  for (var k: I = 1; k < 200; k = k + 1) {
    term = term * (q / (T(k) * (v + T(k))));
    total = total + term;
    if (abs$(term) <= abs$(total) * F(1e-17)) { break; }
  }
  return total;
}
fn jvmiller$(v: T, x: T) -> T {
  let middle: I = (i32(x) + 42) / 2;
  var h: T = F(1);
  for (var k: I = 2; k <= middle; k = k + 1) {
    h = h * ((v + T(k - 1)) / T(k));
  }
  var above: T = F(0);
  var here: T = F(1e-25);
  var total: T = F(0);
  for (var n: I = 2 * middle; n > 0; n = n - 1) {
    if ((n & 1) == 0) {
      let k: I = n / 2;
      total = total + (v + T(n)) * h * here;
      if (k > 1) { h = h * (T(k) / (v + T(k - 1))); }
    }
    let below: T = F(2) * (v + T(n)) / x * here - above;
    above = here;
    here = below;
    if (abs$(here) > F(1e10)) {
      here = here * F(1e-15);
      above = above * F(1e-15);
      total = total * F(1e-15);
    }
  }
  total = total + here;
  return here / total;
}
fn jvright$(v: T, x: T) -> T {
  if (x > F(25) + F(0.5) * v * v) { return jvasymptotic$(v, x); }
  let is_small: B = x < F(1) || F(0.25) * x * x < v + F(1);
  if (!is_small && x > F(20000)) { return nan$(); }
  let factor: T = besselfactor$(v, x);
  if (is_small) { return factor * jvseries$(v, x); }
  return factor * jvmiller$(v, x);
}
fn jv$(order: T, arg: T) -> T {
  var v: T = order;
  let x: T = abs$(arg);
  if (isnan$(v) || isnan$(arg)) { return v + arg; }
  var sign: T = F(1);
  let whole: B = v == floor$(v);
  if (whole) {
    if (isodd$(v) && ((v < F(0)) != (arg < F(0)))) { sign = F(-1); }
    v = abs$(v);
  } else {
    if (arg < F(0)) { return nan$(); }
  }
  if (!isfinite$(x)) { return F(0); }
  if (x == F(0)) {
    if (v == F(0)) { return F(1); }
    if (v > F(0)) { return F(0); }
    return inf$();
  }
  var first: T = v;
  var steps: I = 0;
  if (v <= F(-1)) {
    first = v - floor$(v);
    steps = i32(floor$(F(0.5) - v + first));
  }
  var above: T = F(0);
  var here: T = F(0);
  for (var k: I = 1; k >= 0; k = k - 1) {
    if (k == 0 || steps > 0) {
      above = here;
      here = jvright$(first + T(k), x);
    }
  }
  for (var k: I = 0; k < steps; k = k + 1) {
    let below: T = F(2) * (first - T(k)) / x * here - above;
    above = here;
    here = below;
  }
  return sign * here;
}
fn j0$(x: T) -> T {
  return jv$(F(0), x);
}
fn j1$(x: T) -> T {
  if (x == F(0)) { return x; }
  return jv$(F(1), x);
}
"""
