"""Random numbers from explicit keys: Philox4x32-10, the same bits everywhere.

There is no hidden state. A key is two words of dtype uint32; the same key gives the
same numbers, so a checkpoint that runs again draws what it drew before. Use each key
for one draw and make others with `split` and `fold_in`:

    key = ta.random.key(0)
    first, second = ta.random.split(key)
    x = ta.random.normal(first, (3, 4))

Distributions with parameters are differentiable in them wherever the draw is a smooth
function of the parameters at a fixed key (scales, bounds, rates); shapes of gamma and
beta distributions refuse (`NoRuleError`), counts and choices carry no derivative.

Element k of a draw depends on the key and on k alone: a longer draw of one axis begins
with the shorter one. Draws carry no derivative; bounds and scales do.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as
easy as 1, 2, 3", SC11 (2011).
"""

from ._continuous import (
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    lognormal,
    pareto,
    rayleigh,
    triangular,
    truncated_normal,
    weibull,
)
from ._discrete import (
    binomial,
    categorical,
    choice,
    geometric,
    multinomial,
    poisson,
    rademacher,
)
from ._draws import bernoulli, bits, normal, permutation, randint, uniform
from ._gamma import beta, chisquare, dirichlet, f, gamma, loggamma, t
from ._keys import fold_in, key, split
from ._matrices import multivariate_normal, orthogonal

__all__ = [
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "dirichlet",
    "exponential",
    "f",
    "fold_in",
    "gamma",
    "geometric",
    "gumbel",
    "key",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "multinomial",
    "multivariate_normal",
    "normal",
    "orthogonal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "split",
    "t",
    "triangular",
    "truncated_normal",
    "uniform",
    "weibull",
]
