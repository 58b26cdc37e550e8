"""Gamma functions and their relatives.

Sources: NIST Digital Library of Mathematical Functions, chapters 5, 8 and 25 (Stirling
and Euler-Maclaurin series, recurrences, continued fractions).
"""

from typing import Final

from ._polynomials import horner

# log gamma by Stirling's series in 1 / x^2, gamma between 2 and 3 as a quotient.
_STIRLING: Final = (
    1 / 12,
    -1 / 360,
    1 / 1260,
    -1 / 1680,
    1 / 1188,
    -691 / 360360,
    1 / 156,
    -3617 / 122400,
)
_GAMMA_ABOVE: Final = (
    9.99999999999999996796e-1,
    4.94214826801497100753e-1,
    2.07448227648435975150e-1,
    4.76367800457137231464e-2,
    1.04213797561761569935e-2,
    1.19135147006586384913e-3,
    1.60119522476751861407e-4,
)
_GAMMA_BELOW: Final = (
    1.00000000000000000320,
    7.14304917030273074085e-2,
    -2.34591795718243348568e-1,
    3.58236398605498653373e-2,
    1.18139785222060435552e-2,
    -4.45641913851797240494e-3,
    5.39605580493303397842e-4,
    -2.31581873324120129819e-5,
)
_DIGAMMA: Final = (
    1 / 12,
    -1 / 120,
    1 / 252,
    -1 / 240,
    1 / 132,
    -691 / 32760,
    1 / 12,
    -3617 / 8160,
)
# (2 k)! / B(2 k), what the terms of the Euler-Maclaurin formula are divided by.
_MACLAURIN: Final = (
    12.0,
    -720.0,
    30240.0,
    -1209600.0,
    47900160.0,
    -1.8924375803183791606e9,
    7.47242496e10,
    -2.950130727918164224e12,
    1.1646782814350067249e14,
    -4.5979787224074726105e15,
    1.8152105401943546773e17,
    -7.1661652561756670113e18,
)


def _maclaurin() -> str:
    lines = []
    for d in _MACLAURIN:
        lines += [
            "  rise = rise * (x + k);",
            "  power = power / base;",
            f"  total = total + rise * power * F({1 / d!r});",
            "  k = k + F(1);",
            "  rise = rise * (x + k);",
            "  power = power / base;",
            "  k = k + F(1);",
        ]
    return "\n".join(lines)


GAMMAS: Final = f"""
fn sinpi$(x: T) -> T {{
  let k: T = floor$(x + F(0.5));
  let s: T = sin$(F(3.141592653589793) * (x - k));
  if (k - F(2) * floor$(k * F(0.5)) == F(1)) {{ return -s; }}
  return s;
}}
fn cotpi$(x: T) -> T {{
  let r: T = F(3.141592653589793) * (x - floor$(x + F(0.5)));
  return cos$(r) / sin$(r);
}}
fn gammaln$(x: T) -> T {{
  if (isnan$(x)) {{ return x; }}
  if (!isfinite$(x)) {{ return inf$(); }}
  var at: T = x;
  if (x <= F(0)) {{
    if (x == floor$(x)) {{ return inf$(); }}
    at = F(1) - x;
  }}
  let right: T = gammaln_right$(at);
  if (x > F(0)) {{ return right; }}
  return log$(F(3.141592653589793) / abs$(sinpi$(x))) - right;
}}
fn gammaln_right$(x: T) -> T {{
  if (x >= F(0.5) && x <= F(3)) {{ return log$(gamma$(x)); }}
  var up: T = x;
  var by: T = F(1);
  while (up < F(7)) {{
    by = by * up;
    up = up + F(1);
  }}
  let z: T = F(1) / (up * up);
  let series: T = {horner(_STIRLING, "z")} / up;
  let body: T = (up - F(0.5)) * log$(up) - up + F(0.9189385332046727);
  return (body - log$(by)) + series;
}}
fn gamma$(x: T) -> T {{
  if (isnan$(x) || x == F(0)) {{ return F(1) / x; }}
  if (x < F(0) && x == floor$(x)) {{ return nan$(); }}
  if (x > F(172)) {{ return inf$(); }}
  if (x < F(-190)) {{ return F(0); }}
  var z: T = x;
  var above: T = F(1);
  var below: T = F(1);
  while (z >= F(3)) {{
    z = z - F(1);
    above = above * z;
  }}
  while (z < F(2)) {{
    below = below * z;
    z = z + F(1);
  }}
  let d: T = z - F(2);
  let p: T = {horner(_GAMMA_ABOVE, "d")};
  let q: T = {horner(_GAMMA_BELOW, "d")};
  return above * (p / q) / below;
}}
fn digamma$(x: T) -> T {{
  var at: T = x;
  if (x <= F(0)) {{
    if (x == F(0)) {{ return -copysign$(inf$(), x); }}
    if (x == floor$(x)) {{ return nan$(); }}
    at = F(1) - x;
  }}
  let right: T = digamma_right$(at);
  if (x <= F(0)) {{ return right - F(3.141592653589793) * cotpi$(x); }}
  return right;
}}
fn digamma_right$(x: T) -> T {{
  var up: T = x;
  var total: T = F(0);
  while (up < F(8)) {{
    total = total - F(1) / up;
    up = up + F(1);
  }}
  let z: T = F(1) / (up * up);
  return total + (log$(up) - F(0.5) / up - z * {horner(_DIGAMMA, "z")});
}}
fn zeta$(x: T, q: T) -> T {{
  if (x == F(1)) {{ return inf$(); }}
  if (!(x > F(1))) {{ return nan$(); }}
  if (q <= F(0)) {{
    if (q == floor$(q)) {{ return inf$(); }}
    if (x != floor$(x)) {{ return nan$(); }}
  }}
  var base: T = q;
  var total: T = F(0);
  var n: I = 0;
  while (n < 10 || base <= F(9)) {{
    total = total + pow$(base, -x);
    base = base + F(1);
    n = n + 1;
  }}
  var power: T = pow$(base, -x);
  if (power <= F(1e-20) * total) {{ return total; }}
  total = total + power * base / (x - F(1)) + F(0.5) * power;
  var rise: T = F(1);
  var k: T = F(0);
{_maclaurin()}
  return total;
}}
fn stirlingrest$(x: T) -> T {{
  let z: T = F(1) / (x * x);
  return {horner(_STIRLING, "z")} / x;
}}
fn betaln$(a: T, b: T) -> T {{
  let p: T = minimum$(a, b);
  let q: T = maximum$(a, b);
  let is_small: B = !(q >= F(10)) || !(p > F(0)) || !isfinite$(q);
  var logs: T = F(0);
  for (var k: I = 0; k < 3; k = k + 1) {{
    if (is_small || (k == 0 && p < F(10))) {{
      var at: T = p;
      if (k == 1) {{ at = q; }}
      if (k == 2) {{ at = p + q; }}
      let found: T = gammaln$(at);
      if (k == 2) {{ logs = logs - found; }} else {{ logs = logs + found; }}
    }}
  }}
  if (is_small) {{ return logs; }}
  let rest: T = stirlingrest$(q) - stirlingrest$(p + q);
  let last: T = log1p$(-p / (p + q));
  if (p < F(10)) {{
    return logs + rest + p - p * log$(p + q) + (q - F(0.5)) * last;
  }}
  let first: T = (p - F(0.5)) * log$(p / (p + q)) + q * last;
  return F(0.9189385332046727) - F(0.5) * log$(q) + stirlingrest$(p) + rest + first;
}}
fn gammafactor$(a: T, x: T) -> T {{
  if (a < F(20) && x < F(50)) {{ return pow$(x, a) * exp$(-x) / gamma$(a + F(1)); }}
  return exp$(a * log$(x) - x - gammaln$(a + F(1)));
}}
fn gammainc$(a: T, x: T) -> T {{
  return gammashare$(a, x, false);
}}
fn gammaincc$(a: T, x: T) -> T {{
  return gammashare$(a, x, true);
}}
fn gammashare$(a: T, x: T, above: B) -> T {{
  if (!(a >= F(0) && x >= F(0))) {{ return nan$(); }}
  var found: T = F(0);
  var is_above: B = true;
  if (a == F(0) || x == F(0)) {{
    if (a == x) {{ return nan$(); }}
    is_above = a == F(0);
  }} else {{
    if (isfinite$(x)) {{
      let factor: T = gammafactor$(a, x);
      is_above = x > F(1) && x > a;
      if (is_above) {{
        found = factor * (a * gammafraction$(a, x));
      }} else {{
        found = factor * gammaseries$(a, x);
      }}
    }}
  }}
  if (above == is_above) {{ return found; }}
  return F(1) - found;
}}
fn gammaseries$(a: T, x: T) -> T {{
  var term: T = F(1);
  var total: T = F(1);
  var up: T = a;
  for (var k: I = 0; k < 200000; k = k + 1) {{
    up = up + F(1);
    term = term * (x / up);
    total = total + term;
    if (term <= total * F(1e-17)) {{ return total; }}
  }}
  return nan$();
}}
fn gammafraction$(a: T, x: T) -> T {{
  var b: T = x + F(1) - a;
  var c: T = F(1e30);
  var d: T = F(1) / b;
  var found: T = d;
  for (var k: I = 1; k < 200000; k = k + 1) {{
    let an: T = -T(k) * (T(k) - a);
    b = b + F(2);
    d = an * d + b;
    if (abs$(d) < F(1e-30)) {{ d = F(1e-30); }}
    c = b + an / c;
    if (abs$(c) < F(1e-30)) {{ c = F(1e-30); }}
    d = F(1) / d;
    let step: T = d * c;
    found = found * step;
    if (abs$(step - F(1)) < F(EPS)) {{ return found; }}
  }}
  return nan$();
}}
fn gammaincinv$(a: T, p: T) -> T {{
  if (!(a > F(0) && p >= F(0) && p <= F(1))) {{ return nan$(); }}
  if (p == F(0)) {{ return F(0); }}
  if (p == F(1)) {{ return inf$(); }}
  let whole: T = gammaln$(a + F(1));
  var low: T = exp$((log$(p) + whole) / a);
  var high: T = maximum$(a, F(1));
  var x: T = high;
  var is_bounded: B = false;
  for (var k: I = 0; k < 1200; k = k + 1) {{
    let share: T = gammashare$(a, x, p >= F(0.5));
    var off: T = share - p;
    if (p >= F(0.5)) {{ off = F(1) - p - share; }}
    if (is_bounded) {{
      if (off < F(0)) {{ low = x; }} else {{ high = x; }}
      let slope: T = exp$(a * log$(x) - x - whole) * a / x;
      var next: T = x - off / slope;
      if (!(next > low && next < high)) {{ next = F(0.5) * (low + high); }}
      if (abs$(next - x) <= F(EPS) * x) {{ return next; }}
      x = next;
    }} else {{
      if (off < F(0)) {{
        high = F(2) * high;
        x = high;
      }} else {{
        is_bounded = true;
        x = low;
        if (a > F(1)) {{
          let t: T = ndtri$(p) / (F(3) * sqrt$(a));
          let s: T = F(1) - F(1) / (F(9) * a) + t;
          x = a * s * s * s;
        }}
        if (!(x > low && x < high)) {{ x = F(0.5) * (low + high); }}
      }}
    }}
  }}
  return x;
}}
fn betafraction$(a: T, b: T, x: T) -> T {{
  var c: T = F(1);
  var d: T = F(1) / nonzero$(F(1) - (a + b) * x / (a + F(1)));
  var found: T = d;
  for (var n: I = 1; n < 2000; n = n + 1) {{
    let m: T = T(n);
    let even: T = m * (b - m) * x / ((a + F(2) * m - F(1)) * (a + F(2) * m));
    d = F(1) / nonzero$(F(1) + even * d);
    c = nonzero$(F(1) + even / c);
    found = found * (d * c);
    let odd: T = -(a + m) * (a + b + m) * x / ((a + F(2) * m) * (a + F(2) * m + F(1)));
    d = F(1) / nonzero$(F(1) + odd * d);
    c = nonzero$(F(1) + odd / c);
    let step: T = d * c;
    found = found * step;
    if (abs$(step - F(1)) < F(EPS)) {{ break; }}
  }}
  return found;
}}
fn nonzero$(x: T) -> T {{
  if (abs$(x) < F(1e-30)) {{ return F(1e-30); }}
  return x;
}}
fn betainc$(a: T, b: T, x: T) -> T {{
  if (!(a > F(0) && b > F(0) && x >= F(0) && x <= F(1))) {{ return nan$(); }}
  return betashare$(a, b, x, betaln$(a, b));
}}
fn betashare$(a: T, b: T, x: T, whole: T) -> T {{
  if (x <= F(0)) {{ return F(0); }}
  if (x >= F(1)) {{ return F(1); }}
  let power: T = a * log$(x) + b * log1p$(-x) - whole;
  let is_low: B = x < (a + F(1)) / (a + b + F(2));
  var p: T = a;
  var q: T = b;
  var at: T = x;
  if (!is_low) {{
    p = b;
    q = a;
    at = F(1) - x;
  }}
  let found: T = exp$(power) * betafraction$(p, q, at) / p;
  if (is_low) {{ return found; }}
  return F(1) - found;
}}
fn poissonshare$(k: T, mean: T) -> T {{
  return gammaincc$(k + F(1), mean);
}}
fn poisson_quantile$(u: T, mean: T) -> T {{
  if (!(mean > F(0))) {{ return F(0); }}
  var low: T = F(0);
  var high: T = F(1);
  var is_bounded: B = false;
  while (!is_bounded || low + F(1) < high) {{
    var at: T = high;
    if (is_bounded) {{ at = floor$(F(0.5) * (low + high)); }}
    let is_less: B = poissonshare$(at - F(1), mean) < u;
    if (is_bounded) {{
      if (is_less) {{ low = at; }} else {{ high = at; }}
    }} else {{
      if (is_less && high < F(1e15)) {{
        high = high + high;
      }} else {{
        is_bounded = true;
      }}
    }}
  }}
  return low;
}}
fn binomialshare$(k: T, n: T, p: T) -> T {{
  if (k >= n) {{ return F(1); }}
  return betainc$(n - k, k + F(1), F(1) - p);
}}
fn binomial_quantile$(u: T, n: T, p: T) -> T {{
  if (p >= F(1)) {{ return n; }}
  if (!(p > F(0))) {{ return F(0); }}
  var high: T = n + F(1);
  var low: T = F(0);
  while (low + F(1) < high) {{
    let middle: T = floor$(F(0.5) * (low + high));
    if (binomialshare$(middle - F(1), n, p) < u) {{
      low = middle;
    }} else {{
      high = middle;
    }}
  }}
  return low;
}}
fn betaincinv$(a: T, b: T, p: T) -> T {{
  if (!(a > F(0) && b > F(0) && p >= F(0) && p <= F(1))) {{ return nan$(); }}
  if (p == F(0) || p == F(1)) {{ return p; }}
  var low: T = F(0);
  var high: T = F(1);
  let whole: T = betaln$(a, b);
  var x: T = exp$((log$(p) + log$(a) + whole) / a);
  if (!(x > F(0) && x < F(0.3))) {{ x = a / (a + b); }}
  for (var k: I = 0; k < 200; k = k + 1) {{
    let off: T = betashare$(a, b, x, whole) - p;
    if (off < F(0)) {{ low = x; }} else {{ high = x; }}
    let power: T = (a - F(1)) * log$(x) + (b - F(1)) * log1p$(-x) - whole;
    var next: T = x - off / exp$(power);
    if (!(next > low && next < high)) {{ next = F(0.5) * (low + high); }}
    if (abs$(next - x) <= F(EPS) * x) {{ return next; }}
    x = next;
  }}
  return x;
}}
"""
