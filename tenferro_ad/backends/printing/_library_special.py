"""Error functions, entropies and logistic functions of real numbers.

Sources: J. Weideman, SIAM J. Numer. Anal. 31 (1994), for `erfcx`; M. Giles,
"Approximating the erfinv function" (2010), for the first guess that Halley's iteration
improves.
"""

from typing import Final

from ._library_bessel import BESSELS
from ._library_gamma import GAMMAS
from ._polynomials import FADDEEVA_L, FADDEEVA_TERMS, horner

_GILES_NEAR: Final = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)[::-1]
_GILES_FAR: Final = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)[::-1]
ERRORS: Final = f"""
fn erfcxright$(x: T) -> T {{
  let q: T = (F({FADDEEVA_L!r}) - x) / (F({FADDEEVA_L!r}) + x);
  let r: T = F(1) / (F({FADDEEVA_L!r}) + x);
  return F(2) * {horner(FADDEEVA_TERMS, "q")} * r * r + F(0.5641895835477563) * r;
}}
fn erfcx$(x: T) -> T {{
  if (x < F(-27)) {{ return inf$(); }}
  if (x < F(0)) {{ return F(2) * exp$(x * x) - erfcxright$(-x); }}
  if (x > F(1e6)) {{ return F(0.5641895835477563) / x; }}
  return erfcxright$(x);
}}
fn dawsn$(x: T) -> T {{
  if (abs$(x) < F(1)) {{
    var term: T = x;
    var total: T = x;
    for (var k: I = 1; k < 26; k = k + 1) {{
      term = term * (F(-2) * x * x / T(2 * k + 1));
      total = total + term;
    }}
    return copysign$(total, x);
  }}
  if (abs$(x) > F(1e6)) {{ return F(0.5) / x; }}
  let w: C = cfaddeeva$(cx$(abs$(x), F(0)));
  return copysign$(F(0.886226925452758) * w.y, x);
}}
fn erfguess$(w: T) -> T {{
  if (w < F(5)) {{
    let n: T = w - F(2.5);
    return {horner(_GILES_NEAR, "n")};
  }}
  let f: T = sqrt$(w) - F(3);
  return {horner(_GILES_FAR, "f")};
}}
fn erfcinvlow$(p: T) -> T {{
  let size: T = -log$(p);
  var x: T = sqrt$(size - F(0.5) * log$(F(3.141592653589793) * size));
  if (size < F(12)) {{ x = erfguess$(-log$(p * (F(2) - p))) * (F(1) - p); }}
  for (var k: I = 0; k < 3; k = k + 1) {{
    let u: T = (erfc$(x) - p) / (F(-1.1283791670955126) * exp$(-x * x));
    x = x - u / (F(1) + x * u);
  }}
  return x;
}}
fn erfcinv$(p: T) -> T {{
  if (p == F(0)) {{ return inf$(); }}
  if (p == F(2)) {{ return -inf$(); }}
  if (!(p > F(0) && p < F(2))) {{ return nan$(); }}
  if (p > F(0.5) && p < F(1.5)) {{ return erfinv$(F(1) - p); }}
  if (p > F(1)) {{ return -erfcinvlow$(F(2) - p); }}
  return erfcinvlow$(p);
}}
fn erfinv$(y: T) -> T {{
  if (y == F(1)) {{ return inf$(); }}
  if (y == F(-1)) {{ return -inf$(); }}
  if (!(abs$(y) < F(1))) {{ return nan$(); }}
  if (abs$(y) > F(0.5)) {{ return copysign$(erfcinvlow$(F(1) - abs$(y)), y); }}
  var x: T = erfguess$(-log1p$(-y * y)) * y;
  for (var k: I = 0; k < 2; k = k + 1) {{
    let u: T = (erf$(x) - y) / (F(1.1283791670955126) * exp$(-x * x));
    x = x - u / (F(1) + x * u);
  }}
  return x;
}}
fn ndtr$(x: T) -> T {{
  return F(0.5) * erfc$(-x * F(0.7071067811865476));
}}
fn ndtri$(p: T) -> T {{
  return F(-1.4142135623730951) * erfcinv$(F(2) * p);
}}
fn log_ndtr$(x: T) -> T {{
  if (x < F(-1)) {{
    return log$(F(0.5) * erfcx$(-x * F(0.7071067811865476))) - F(0.5) * x * x;
  }}
  return log1p$(F(-0.5) * erfc$(x * F(0.7071067811865476)));
}}
"""

ENTROPIES: Final = """
fn xlogy$(x: T, y: T) -> T {
  if (x == F(0) && !isnan$(y)) { return F(0); }
  return x * log$(y);
}
fn xlog1py$(x: T, y: T) -> T {
  if (x == F(0) && !isnan$(y)) { return F(0); }
  return x * log1p$(y);
}
fn entr$(x: T) -> T {
  if (x > F(0)) { return -x * log$(x); }
  if (x == F(0)) { return F(0); }
  if (x < F(0)) { return -inf$(); }
  return x;
}
fn logratio$(x: T, y: T) -> T {
  let q: T = x / y;
  if (q > F(0) && isfinite$(q)) { return log$(q); }
  return log$(x) - log$(y);
}
fn rel_entr$(x: T, y: T) -> T {
  if (isnan$(x) || isnan$(y)) { return x + y; }
  if (x > F(0) && y > F(0)) { return x * logratio$(x, y); }
  if (x == F(0) && y >= F(0)) { return F(0); }
  return inf$();
}
fn kl_div$(x: T, y: T) -> T {
  if (isnan$(x) || isnan$(y)) { return x + y; }
  if (x > F(0) && y > F(0)) { return x * logratio$(x, y) - x + y; }
  if (x == F(0) && y >= F(0)) { return y; }
  return inf$();
}
fn logit$(x: T) -> T {
  return log$(x / (F(1) - x));
}
fn log_expit$(x: T) -> T {
  if (x < F(0)) { return x - log1p$(exp$(x)); }
  return -log1p$(exp$(-x));
}
"""

SPECIAL: Final = ERRORS + GAMMAS + BESSELS + ENTROPIES
