"""Where a derivative is a convention: the sentences that rows declare as their `kink`.

`docs/operations.md` lists them; a test shows each at a point, and says what JAX and
PyTorch give there.
"""

from __future__ import annotations

from typing import Final

TIES: Final = "Equal extrema share the slope equally."
NANS: Final = "Equal extrema share the slope equally; NaN is one wherever it occurs."
CLIP: Final = (
    "Slope 1 on the closed interval; a bound has the slope where it is active."
)
MAGNITUDE: Final = "Slope 0 where the magnitude is 0, the least subgradient."
STEPS: Final = "Locally constant, also at its steps."
DIRECTION: Final = (
    "Locally constant for real numbers; the slope of the direction for complex ones, "
    "and 0 at 0."
)
SELECT: Final = "Nothing passes from what is not selected, not even NaN or infinity."
POWERS: Final = "x ** 0 has slope 0 in x, and 0 ** y has slope 0 in y for y >= 0."
ROOT: Final = "Slope inf at 0."
HINGE: Final = "Slope 0 at 0."
FACTORS: Final = "The slope is the product of the other factors, which may be zero."
ORDER: Final = "Equal elements keep their order, and each takes its own slope."
SIGN: Final = "No slope in the argument that gives the sign."
NEIGHBOUR: Final = "The distance to the next number is locally constant."
ADJUGATE: Final = "Right at singular matrices too: a determinant is a polynomial."
SPECTRUM: Final = (
    "At equal values the first derivative is finite, and right for losses that do not "
    "depend on the basis of their space; higher ones lack what equal values do to each "
    "other, which no cotangent tells. Phases stand still."
)
RANK: Final = "Right among matrices of the same rank."
PIVOTS: Final = "The order of the rows is locally constant."
