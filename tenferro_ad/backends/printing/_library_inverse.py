"""Inverse sines, cosines and tangents of complex numbers.

Near the origin they are products of square roots that lose nothing, far away the
logarithm that they tend to, and NaN beside an infinity leaves what C99 defines.

Sources: W. Kahan, "Branch cuts for complex elementary functions" (1987); ISO C99,
annex G.6; NIST Digital Library of Mathematical Functions, section 4.23.
"""

from typing import Final

INVERSE: Final = """
fn isfar$(a: C) -> B {
  return abs$(a.x) > F(1) / F(EPS) || abs$(a.y) > F(1) / F(EPS);
}
fn logtwice$(a: C) -> T {
  let w: C = clog$(a);
  return w.x + F(0.6931471805599453);
}
fn cacos$(a: C) -> C {
  if (isnan$(a.x) || isnan$(a.y)) {
    if (isinf$(a.x)) { return cx$(nan$(), -inf$()); }
    if (isinf$(a.y)) { return cx$(nan$(), -a.y); }
    if (a.x == F(0)) { return cx$(F(1.5707963267948966), nan$()); }
    return cx$(nan$(), nan$());
  }
  if (isfar$(a)) {
    return cx$(atan2$(abs$(a.y), a.x), -copysign$(logtwice$(a), a.y));
  }
  let m: C = csqrt$(cx$(F(1) - a.x, -a.y));
  let p: C = csqrt$(cx$(F(1) + a.x, a.y));
  let size: T = asinh$(abs$(p.x * m.y) + abs$(p.y * m.x));
  return cx$(F(2) * atan2$(m.x, p.x), -copysign$(size, a.y));
}
fn casin$(a: C) -> C {
  if (isnan$(a.y) && isinf$(a.x)) { return cx$(nan$(), inf$()); }
  let w: C = casinh$(cx$(-a.y, a.x));
  return cx$(w.y, -w.x);
}
fn casinh$(a: C) -> C {
  if (isnan$(a.x) || isnan$(a.y)) {
    if (isinf$(a.x)) { return cx$(a.x, nan$()); }
    if (isinf$(a.y)) { return cx$(inf$(), nan$()); }
    if (a.y == F(0)) { return a; }
    return cx$(nan$(), nan$());
  }
  if (isfar$(a)) {
    let angle: T = atan2$(abs$(a.y), abs$(a.x));
    return cx$(copysign$(logtwice$(a), a.x), copysign$(angle, a.y));
  }
  let m: C = csqrt$(cx$(F(1) + a.y, -a.x));
  let p: C = csqrt$(cx$(F(1) - a.y, a.x));
  let size: T = asinh$(abs$(m.x * p.y) + abs$(m.y * p.x));
  let angle: T = atan2$(abs$(a.y), abs$(m.x * p.x) + abs$(m.y * p.y));
  return cx$(copysign$(size, a.x), copysign$(angle, a.y));
}
fn cacosh$(a: C) -> C {
  if (isnan$(a.x) || isnan$(a.y)) {
    if (isinf$(a.x) || isinf$(a.y)) { return cx$(inf$(), nan$()); }
    if (a.x == F(0)) { return cx$(nan$(), F(1.5707963267948966)); }
    return cx$(nan$(), nan$());
  }
  if (isfar$(a)) { return cx$(logtwice$(a), atan2$(a.y, a.x)); }
  let m: C = csqrt$(cx$(a.x - F(1), a.y));
  let p: C = csqrt$(cx$(a.x + F(1), a.y));
  return cx$(asinh$(m.x * p.x + m.y * p.y), F(2) * atan2$(m.y, p.x));
}
fn catanh$(a: C) -> C {
  let x: T = abs$(a.x);
  let y: T = abs$(a.y);
  if (isinf$(y)) {
    return cx$(copysign$(F(0), a.x), copysign$(F(1.5707963267948966), a.y));
  }
  if (isnan$(y) && (isinf$(x) || x == F(0))) {
    return cx$(copysign$(F(0), a.x), nan$());
  }
  if (isnan$(x) || isnan$(y)) { return cx$(nan$(), nan$()); }
  var re: T = F(0);
  var turn: T = F(1.5707963267948966);
  if (isfar$(a)) {
    if (isinf$(x)) {
      re = F(0);
    } else if (x >= y) {
      let q: T = y / x;
      re = (F(1) / x) / (F(1) + q * q);
    } else {
      let q: T = x / y;
      re = (q / y) / (F(1) + q * q);
    }
  } else if (x == F(1)) {
    if (y < F(EPS)) {
      re = F(0.5) * (F(0.6931471805599453) - log$(y));
    } else {
      re = F(0.25) * log1p$(F(4) / (y * y));
    }
    turn = F(0.5) * atan2$(F(2), -y);
    if (y == F(0)) { turn = F(0); }
  } else {
    re = F(0.25) * log1p$(F(4) * x / ((F(1) - x) * (F(1) - x) + y * y));
    turn = F(0.5) * atan2$(F(2) * y, (F(1) - x) * (F(1) + x) - y * y);
  }
  return cx$(copysign$(re, a.x), copysign$(turn, a.y));
}
fn catan$(a: C) -> C {
  let w: C = catanh$(cx$(-a.y, a.x));
  return cx$(w.y, -w.x);
}
"""
