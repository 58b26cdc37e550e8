"""Complex functions on pairs of real numbers.

Special values are C99's (annex G.6). Roots and logarithms of numbers that are too large
or too small to be squared are those of a multiple by a power of 2; exponentials that
overflow come in halves, because a small sine may bring the product back.

Sources: W. Kahan, "Branch cuts for complex elementary functions" (1987); ISO C99, annex
G.6; R. Smith, CACM 5 (1962), for division, which at infinities is NumPy's; J. Weideman,
SIAM J. Numer. Anal. 31 (1994), for the function w(z) of the error functions.
"""

from typing import Final

from ._polynomials import FADDEEVA_L, FADDEEVA_TERMS, horner_pairs

COMPLEX: Final = (
    """
fn cadd$(a: C, b: C) -> C {
  return cx$(a.x + b.x, a.y + b.y);
}
fn csub$(a: C, b: C) -> C {
  return cx$(a.x - b.x, a.y - b.y);
}
fn cneg$(a: C) -> C {
  return cx$(-a.x, -a.y);
}
fn cconj$(a: C) -> C {
  return cx$(a.x, -a.y);
}
fn cscale$(a: C, s: T) -> C {
  return cx$(a.x * s, a.y * s);
}
fn cmul$(a: C, b: C) -> C {
  return cx$(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
fn overnothing$(x: T) -> T {
  if (x == F(0) || isnan$(x)) { return nan$(); }
  return copysign$(inf$(), x);
}
fn cdiv$(a: C, b: C) -> C {
  if (abs$(b.x) >= abs$(b.y)) {
    if (b.x == F(0) && b.y == F(0)) {
      return cx$(overnothing$(a.x), overnothing$(a.y));
    }
    let r: T = b.y / b.x;
    let s: T = F(1) / (b.x + b.y * r);
    return cx$((a.x + a.y * r) * s, (a.y - a.x * r) * s);
  }
  let r: T = b.x / b.y;
  let s: T = F(1) / (b.y + b.x * r);
  return cx$((a.x * r + a.y) * s, (a.y * r - a.x) * s);
}
fn creciprocal$(a: C) -> C {
  if (abs$(a.y) <= abs$(a.x)) {
    let r: T = a.y / a.x;
    let d: T = a.x + a.y * r;
    return cx$(F(1) / d, -r / d);
  }
  let r: T = a.x / a.y;
  let d: T = a.x * r + a.y;
  return cx$(r / d, F(-1) / d);
}
fn csign$(a: C) -> C {
  let size: T = hypot$(a.x, a.y);
  if (size == F(0)) { return cx$(F(0), F(0)); }
  return cx$(a.x / size, a.y / size);
}
fn cround$(a: C) -> C {
  return cx$(round$(a.x), round$(a.y));
}
fn cisfinite$(a: C) -> B {
  return isfinite$(a.x) && isfinite$(a.y);
}
fn ciszero$(a: C) -> B {
  return a.x == F(0) && a.y == F(0);
}
fn cszmul$(a: C, b: C) -> C {
  if (ciszero$(a) || ciszero$(b)) { return cx$(F(0), F(0)); }
  return cmul$(a, b);
}
fn cszfactor$(a: C, b: C) -> C {
  if (ciszero$(a) && !cisfinite$(b)) { return cx$(F(0), F(0)); }
  return b;
}
fn cszgate$(a: C, b: C, c: C) -> C {
  if (ciszero$(a) && !cisfinite$(b)) { return cx$(F(0), F(0)); }
  return c;
}
fn csqrt$(a: C) -> C {
  if (isinf$(a.y)) { return cx$(inf$(), a.y); }
  if (isnan$(a.x)) { return cx$(nan$(), nan$()); }
  if (isinf$(a.x)) {
    var rest: T = F(0);
    if (isnan$(a.y)) { rest = nan$(); }
    if (a.x > F(0)) { return cx$(a.x, copysign$(rest, a.y)); }
    return cx$(rest, copysign$(inf$(), a.y));
  }
  if (isnan$(a.y)) { return cx$(nan$(), nan$()); }
  if (ciszero$(a)) { return cx$(F(0), a.y); }
  var x: T = abs$(a.x);
  var y: T = abs$(a.y);
  var back: T = F(1);
  if (x > F(HUGE) || y > F(HUGE)) {
    x = x * F(0.0625);
    y = y * F(0.0625);
    back = F(4);
  } else if (x < F(LEAST) && y < F(LEAST)) {
    x = x * F(18014398509481984);
    y = y * F(18014398509481984);
    back = F(7.450580596923828e-09);
  }
  let t: T = sqrt$((x + hypot$(x, y)) * F(0.5));
  let u: T = (y / (F(2) * t)) * back;
  if (a.x >= F(0)) { return cx$(t * back, copysign$(u, a.y)); }
  return cx$(u, copysign$(t * back, a.y));
}
fn crsqrt$(a: C) -> C {
  return creciprocal$(csqrt$(a));
}
fn cexp$(a: C) -> C {
  if (a.y == F(0)) { return cx$(exp$(a.x), a.y); }
  if (isinf$(a.x) && !isfinite$(a.y)) {
    if (a.x < F(0)) { return cx$(F(0), copysign$(F(0), a.y)); }
    return cx$(a.x, nan$());
  }
  return cturned$(a.x, F(1), a.y);
}
fn cturned$(x: T, by: T, y: T) -> C {
  let e: T = exp$(x);
  let c: T = by * cos$(y);
  let s: T = by * sin$(y);
  if (isinf$(e) && !isinf$(x)) {
    let h: T = exp$(F(0.5) * x);
    return cx$((c * h) * h, (s * h) * h);
  }
  return cx$(e * c, e * s);
}
fn cexp2$(a: C) -> C {
  return cexp$(cscale$(a, F(0.6931471805599453)));
}
fn cexpm1$(a: C) -> C {
  let s: T = sin$(a.y * F(0.5));
  return cx$(expm1$(a.x) * cos$(a.y) - F(2) * s * s, exp$(a.x) * sin$(a.y));
}
fn clog$(a: C) -> C {
  let big: T = maximum$(abs$(a.x), abs$(a.y));
  let small: T = minimum$(abs$(a.x), abs$(a.y));
  let angle: T = atan2$(a.y, a.x);
  if (big > F(0.5) && big < F(2)) {
    let d: T = (big - F(1)) * (big + F(1)) + small * small;
    if (d > F(-0.5)) { return cx$(F(0.5) * log1p$(d), angle); }
  }
  if (big > F(HUGE) && isfinite$(big)) {
    let low: T = log$(hypot$(a.x * F(0.0625), a.y * F(0.0625)));
    return cx$(low + F(2.772588722239781), angle);
  }
  if (big < F(LEAST) && big > F(0)) {
    let up: T = F(18014398509481984);
    return cx$(log$(hypot$(a.x * up, a.y * up)) - F(37.42994775023705), angle);
  }
  return cx$(log$(hypot$(a.x, a.y)), angle);
}
fn clog1p$(a: C) -> C {
  if (abs$(a.x) < F(0.25) && abs$(a.y) < F(0.25)) {
    let d: T = a.x * (F(2) + a.x) + a.y * a.y;
    return cx$(F(0.5) * log1p$(d), atan2$(a.y, F(1) + a.x));
  }
  return clog$(cx$(F(1) + a.x, a.y));
}
fn clog2$(a: C) -> C {
  return cscale$(clog$(a), F(1.4426950408889634));
}
fn clog10$(a: C) -> C {
  return cscale$(clog$(a), F(0.4342944819032518));
}
fn csinh$(a: C) -> C {
  if (a.y == F(0)) { return cx$(sinh$(a.x), a.y); }
  if (!isfinite$(a.y)) {
    if (a.x == F(0)) { return cx$(a.x, nan$()); }
    if (isinf$(a.x)) { return cx$(inf$(), nan$()); }
    return cx$(nan$(), nan$());
  }
  if (abs$(a.x) > F(40)) {
    let w: C = cturned$(abs$(a.x), F(0.5), a.y);
    if (a.x < F(0)) { return cx$(-w.x, w.y); }
    return w;
  }
  return cx$(sinh$(a.x) * cos$(a.y), cosh$(a.x) * sin$(a.y));
}
fn ccosh$(a: C) -> C {
  if (a.y == F(0)) {
    if (isnan$(a.x)) { return a; }
    return cx$(cosh$(a.x), copysign$(F(0), a.y) * copysign$(F(1), a.x));
  }
  if (!isfinite$(a.y)) {
    if (a.x == F(0)) { return cx$(nan$(), F(0)); }
    if (isinf$(a.x)) { return cx$(inf$(), nan$()); }
    return cx$(nan$(), nan$());
  }
  if (abs$(a.x) > F(40)) {
    let w: C = cturned$(abs$(a.x), F(0.5), a.y);
    if (a.x < F(0)) { return cx$(w.x, -w.y); }
    return w;
  }
  return cx$(cosh$(a.x) * cos$(a.y), sinh$(a.x) * sin$(a.y));
}
fn ctanh$(a: C) -> C {
  if (isinf$(a.x) && !isfinite$(a.y)) {
    return cx$(copysign$(F(1), a.x), copysign$(F(0), a.y));
  }
  if (a.y == F(0)) { return cx$(tanh$(a.x), a.y); }
  if (!isfinite$(a.y)) {
    if (a.x == F(0)) { return cx$(a.x, nan$()); }
    return cx$(nan$(), nan$());
  }
  if (abs$(a.x) > F(20)) {
    let e: T = exp$(F(-2) * abs$(a.x));
    return cx$(copysign$(F(1), a.x), F(4) * sin$(a.y) * cos$(a.y) * e);
  }
  let s: T = sinh$(a.x);
  let c: T = cos$(a.y);
  let d: T = c * c + s * s;
  return cx$(s * cosh$(a.x) / d, sin$(a.y) * c / d);
}
fn csin$(a: C) -> C {
  if (isinf$(a.y) && !isfinite$(a.x)) { return cx$(nan$(), inf$()); }
  let w: C = csinh$(cx$(-a.y, a.x));
  return cx$(w.y, -w.x);
}
fn ccos$(a: C) -> C {
  return ccosh$(cx$(-a.y, a.x));
}
fn ctan$(a: C) -> C {
  let w: C = ctanh$(cx$(-a.y, a.x));
  return cx$(w.y, -w.x);
}
fn cboxed$(a: C) -> C {
  var x: T = F(0);
  var y: T = F(0);
  if (isinf$(a.x)) { x = F(1); }
  if (isinf$(a.y)) { y = F(1); }
  return cx$(copysign$(x, a.x), copysign$(y, a.y));
}
fn cwithout$(a: C) -> C {
  var x: T = a.x;
  var y: T = a.y;
  if (isnan$(x)) { x = copysign$(F(0), x); }
  if (isnan$(y)) { y = copysign$(F(0), y); }
  return cx$(x, y);
}
fn cproduct$(a: C, b: C) -> C {
  let xx: T = a.x * b.x;
  let yy: T = a.y * b.y;
  let xy: T = a.x * b.y;
  let yx: T = a.y * b.x;
  if (!isnan$(xx - yy) || !isnan$(xy + yx)) { return cx$(xx - yy, xy + yx); }
  var left: C = a;
  var right: C = b;
  var again: B = false;
  if (isinf$(a.x) || isinf$(a.y)) {
    left = cboxed$(a);
    right = cwithout$(b);
    again = true;
  }
  if (isinf$(b.x) || isinf$(b.y)) {
    left = cwithout$(left);
    right = cboxed$(right);
    again = true;
  }
  if (!again && (isinf$(xx) || isinf$(yy) || isinf$(xy) || isinf$(yx))) {
    left = cwithout$(a);
    right = cwithout$(b);
    again = true;
  }
  if (!again) { return cx$(nan$(), nan$()); }
  let w: C = cmul$(left, right);
  return cx$(inf$() * w.x, inf$() * w.y);
}
fn cpow$(a: C, b: C) -> C {
  if (ciszero$(b)) { return cx$(F(1), F(0)); }
  if (ciszero$(a)) {
    if (b.x > F(0)) { return cx$(F(0), F(0)); }
    return cx$(nan$(), nan$());
  }
  if (b.y == F(0) && b.x == floor$(b.x) && abs$(b.x) < F(100)) {
    if (b.x == F(1)) { return a; }
    if (b.x == F(2)) { return cmul$(a, a); }
    if (b.x == F(3)) { return cmul$(a, cmul$(a, a)); }
    var found: C = cx$(F(1), F(0));
    var base: C = a;
    var left: I = i32(abs$(b.x));
    while (left > 0) {
      if ((left & 1) == 1) { found = cmul$(found, base); }
      base = cmul$(base, base);
      left = left >> 1u;
    }
    if (b.x < F(0)) { return cdiv$(cx$(F(1), F(0)), found); }
    return found;
  }
  return cexp$(cproduct$(b, clog$(a)));
}
"""
    + f"""
fn cfaddeeva$(z: C) -> C {{
  let down: C = cx$(F({FADDEEVA_L!r}) + z.y, -z.x);
  let up: C = cx$(F({FADDEEVA_L!r}) - z.y, z.x);
  let q: C = cdiv$(up, down);
{horner_pairs(FADDEEVA_TERMS)}
  let r: C = creciprocal$(down);
  let far: C = cscale$(r, F(0.5641895835477563));
  return cadd$(cmul$(cscale$(r, F(2)), cmul$(found, r)), far);
}}
fn cerfcright$(a: C) -> C {{
  let e: C = cexp$(cneg$(cmul$(a, a)));
  return cmul$(e, cfaddeeva$(cx$(-a.y, a.x)));
}}
fn cerfc$(a: C) -> C {{
  if (a.x * a.x + a.y * a.y < F(1)) {{
    return csub$(cx$(F(1), F(0)), cerf$(a));
  }}
  if (a.x >= F(0)) {{ return cerfcright$(a); }}
  return csub$(cx$(F(2), F(0)), cerfcright$(cneg$(a)));
}}
fn cerf$(a: C) -> C {{
  if (a.x * a.x + a.y * a.y < F(1)) {{
    let square: C = cmul$(a, a);
    var term: C = a;
    var total: C = a;
    for (var k: I = 1; k < 26; k = k + 1) {{
      term = cscale$(cmul$(term, square), F(-1) / T(k));
      total = cadd$(total, cscale$(term, F(1) / T(2 * k + 1)));
    }}
    return cscale$(total, F(1.1283791670955126));
  }}
  if (a.x >= F(0)) {{ return csub$(cx$(F(1), F(0)), cerfcright$(a)); }}
  return csub$(cerfcright$(cneg$(a)), cx$(F(1), F(0)));
}}
"""
)
