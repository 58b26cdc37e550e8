"""Complex functions on pairs of real numbers.

Sources: W. Kahan, "Branch cuts for complex elementary functions" (1987), for the
inverse functions; R. Smith, CACM 5 (1962), for division; J. Weideman, SIAM J. Numer.
Anal. 31 (1994), for the function w(z) that the error functions are made of.
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
fn cdiv$(a: C, b: C) -> C {
  if (abs$(b.x) >= abs$(b.y)) {
    if (b.x == F(0) && b.y == F(0)) {
      return cx$(a.x / abs$(b.x), a.y / abs$(b.x));
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
  if (ciszero$(a)) { return cx$(F(0), a.y); }
  let t: T = sqrt$((abs$(a.x) + hypot$(a.x, a.y)) * F(0.5));
  if (a.x >= F(0)) { return cx$(t, a.y / (F(2) * t)); }
  return cx$(abs$(a.y) / (F(2) * t), copysign$(t, a.y));
}
fn crsqrt$(a: C) -> C {
  return creciprocal$(csqrt$(a));
}
fn cexp$(a: C) -> C {
  let e: T = exp$(a.x);
  if (a.y == F(0)) { return cx$(e, a.y); }
  return cx$(e * cos$(a.y), e * sin$(a.y));
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
  return cx$(sinh$(a.x) * cos$(a.y), cosh$(a.x) * sin$(a.y));
}
fn ccosh$(a: C) -> C {
  if (a.y == F(0)) { return cx$(cosh$(a.x), a.y * copysign$(F(1), a.x)); }
  return cx$(cosh$(a.x) * cos$(a.y), sinh$(a.x) * sin$(a.y));
}
fn ctanh$(a: C) -> C {
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
fn cacos$(a: C) -> C {
  let m: C = csqrt$(cx$(F(1) - a.x, -a.y));
  let p: C = csqrt$(cx$(F(1) + a.x, a.y));
  return cx$(F(2) * atan2$(m.x, p.x), asinh$(p.x * m.y - p.y * m.x));
}
fn casin$(a: C) -> C {
  let m: C = csqrt$(cx$(F(1) - a.x, -a.y));
  let p: C = csqrt$(cx$(F(1) + a.x, a.y));
  return cx$(atan2$(a.x, m.x * p.x - m.y * p.y), asinh$(m.x * p.y - m.y * p.x));
}
fn cacosh$(a: C) -> C {
  let m: C = csqrt$(cx$(a.x - F(1), a.y));
  let p: C = csqrt$(cx$(a.x + F(1), a.y));
  return cx$(asinh$(m.x * p.x + m.y * p.y), F(2) * atan2$(m.y, p.x));
}
fn casinh$(a: C) -> C {
  let w: C = casin$(cx$(-a.y, a.x));
  return cx$(w.y, -w.x);
}
fn catanh$(a: C) -> C {
  let x: T = abs$(a.x);
  let d: T = (F(1) - x) * (F(1) - x) + a.y * a.y;
  let s: T = (F(1) - x) * (F(1) + x) - a.y * a.y;
  let re: T = copysign$(F(0.25) * log1p$(F(4) * x / d), a.x);
  return cx$(re, F(0.5) * atan2$(F(2) * a.y, s));
}
fn catan$(a: C) -> C {
  let w: C = catanh$(cx$(-a.y, a.x));
  return cx$(w.y, -w.x);
}
fn cpow$(a: C, b: C) -> C {
  if (ciszero$(b)) { return cx$(F(1), F(0)); }
  if (ciszero$(a)) {
    if (b.x > F(0)) { return cx$(F(0), F(0)); }
    return cx$(nan$(), nan$());
  }
  if (b.y == F(0) && b.x == floor$(b.x) && abs$(b.x) < F(100)) {
    var found: C = cx$(F(1), F(0));
    var base: C = a;
    var left: I = i32(abs$(b.x));
    while (left > 0) {
      if ((left & 1) == 1) { found = cmul$(found, base); }
      base = cmul$(base, base);
      left = left >> 1u;
    }
    if (b.x < F(0)) { return creciprocal$(found); }
    return found;
  }
  return cexp$(cmul$(b, clog$(a)));
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
