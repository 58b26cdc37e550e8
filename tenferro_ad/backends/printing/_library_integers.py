"""Integer functions with NumPy's meaning: they wrap around, division rounds down, what
is divided by 0 is 0, and shifts by too many bits leave nothing but the sign."""

from typing import Final

# Sums and products that wrap around as two's complement does; `wrapping` of a dialect
# says how a language is kept from assuming that they never do.
WRAPPING: Final = """
fn wadd$(x: T, y: T) -> T {
  return x + y;
}
fn wsub$(x: T, y: T) -> T {
  return x - y;
}
fn wmul$(x: T, y: T) -> T {
  return x * y;
}
fn wneg$(x: T) -> T {
  return N(0) - x;
}
fn shl$(x: T, by: U) -> T {
  return x << by;
}
"""

INTEGERS: Final = """
fn maximum$(x: T, y: T) -> T {
  if (x > y) { return x; }
  return y;
}
fn minimum$(x: T, y: T) -> T {
  if (x < y) { return x; }
  return y;
}
fn pow$(x: T, y: T) -> T {
  var left: T = y;
  var base: T = x;
  var found: T = N(1);
  if (y < N(0)) {
    if (x == N(1)) { return x; }
    found = N(0);
    if (wadd$(x, N(1)) == N(0)) {
      found = N(1);
      if ((y & N(1)) == N(1)) { found = x; }
    }
    return found;
  }
  while (left > N(0)) {
    if ((left & N(1)) == N(1)) { found = wmul$(found, base); }
    base = wmul$(base, base);
    left = left >> 1u;
  }
  return found;
}
"""

SIGNED: Final = """
fn abs$(x: T) -> T {
  if (x < N(0)) { return wneg$(x); }
  return x;
}
fn sign$(x: T) -> T {
  if (x > N(0)) { return N(1); }
  if (x < N(0)) { return N(-1); }
  return N(0);
}
fn signbit$(x: T) -> B {
  return x < N(0);
}
fn relu$(x: T) -> T {
  if (x < N(0)) { return N(0); }
  return x;
}
fn floor_divide$(x: T, y: T) -> T {
  if (y == N(0)) { return N(0); }
  if (y == N(-1)) { return wneg$(x); }
  let q: T = x / y;
  let left: T = x - q * y;
  if (left != N(0) && ((left < N(0)) != (y < N(0)))) { return q - N(1); }
  return q;
}
fn remainder$(x: T, y: T) -> T {
  if (y == N(0) || y == N(-1)) { return N(0); }
  let left: T = x - (x / y) * y;
  if (left != N(0) && ((left < N(0)) != (y < N(0)))) { return left + y; }
  return left;
}
fn left_shift$(x: T, y: T) -> T {
  if (y < N(0) || y >= N(BITS)) { return N(0); }
  return shl$(x, u32(y));
}
fn right_shift$(x: T, y: T) -> T {
  if (y < N(0) || y >= N(BITS)) {
    if (x < N(0)) { return N(-1); }
    return N(0);
  }
  return x >> u32(y);
}
"""

UNSIGNED: Final = """
fn sign$(x: T) -> T {
  if (x > N(0)) { return N(1); }
  return N(0);
}
fn floor_divide$(x: T, y: T) -> T {
  if (y == N(0)) { return N(0); }
  return x / y;
}
fn remainder$(x: T, y: T) -> T {
  if (y == N(0)) { return N(0); }
  return x % y;
}
fn left_shift$(x: T, y: T) -> T {
  if (y >= N(BITS)) { return N(0); }
  return shl$(x, u32(y));
}
fn right_shift$(x: T, y: T) -> T {
  if (y >= N(BITS)) { return N(0); }
  return x >> u32(y);
}
fn mulhi$(x: T, y: T) -> T {
  let xl: T = x & N(0xffff);
  let xh: T = x >> 16u;
  let yl: T = y & N(0xffff);
  let yh: T = y >> 16u;
  let a: T = xh * yl + ((xl * yl) >> 16u);
  let b: T = xl * yh + (a & N(0xffff));
  return xh * yh + (a >> 16u) + (b >> 16u);
}
fn mod64$(high: T, low: T, by: T) -> T {
  var left: T = high % by;
  for (var k: I = 0; k < 32; k = k + 1) {
    let carry: T = left >> 31u;
    left = (left << 1u) | ((low >> u32(31 - k)) & N(1));
    if (carry == N(1) || left >= by) { left = left - by; }
  }
  return left;
}
"""
