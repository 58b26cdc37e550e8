"""Stochastic gradient descent and Adam."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import optree

import tenferro_ad as ta

_sgd = ta.fused(lambda E, p, g, lr: p - lr * g)
_sgd_decay = ta.fused(lambda E, p, g, lr, decay: p - lr * (g + decay * p))
_momentum = ta.fused(lambda E, b, g, p, mu, decay: mu * b + (g + decay * p))
_nesterov = ta.fused(
    lambda E, p, b, g, lr, mu, decay: p - lr * ((g + decay * p) + mu * b)
)
_first = ta.fused(
    lambda E, m, g, p, beta, decay: m + (1.0 - beta) * (g + decay * p - m)
)
_second = ta.fused(
    lambda E, v, g, p, beta, decay: (
        beta * v + (1.0 - beta) * ((g + decay * p) * E.conj(g + decay * p))
    )
)
_adam = ta.fused(
    lambda E, p, m, v, step, root, eps: p - step * m / (E.sqrt(v) * root + eps)
)


class _Optimizer(ABC):
    """Finds parameters and gradients, keeps state by variable, updates all or nothing."""

    _states = 0

    def __init__(self, lr: float | Callable[[int], float]) -> None:
        self.lr = lr
        self.steps = 0
        self._state: dict[Any, tuple[ta.EagerTensor, ...]] = {}

    def _rate(self) -> float:
        return self.lr(self.steps) if callable(self.lr) else self.lr

    def update(self, params: Any, grads: ta.Gradients) -> None:
        """Change the variables of pytree `params` in place.

        Variables without a gradient stay as they are.

        Raises:
            NotALeafError: a leaf of `params` is no variable.
            NotUniqueError: somebody else holds a parameter; nothing changed.
            BorrowConflictError: an exported array reads a parameter; nothing changed.

        Cost: 0 allocations and 0 copies, but for the state on a variable's first step;
            a few passes over each parameter.
        """
        leaves = optree.tree_leaves(params, namespace="tenferro_ad")
        pairs = [(w, g) for w in leaves if (g := grads.grad(w)) is not None]
        fresh = {}
        for w, _ in pairs:
            if w.leaf not in self._state:
                fresh[w.leaf] = tuple(ta.zeros_like(w) for _ in range(self._states))
        states = [self._state.get(w.leaf) or fresh[w.leaf] for w, _ in pairs]
        flat = [t for s in states for t in s]
        with ta.exclusive(*[w for w, _ in pairs], *flat) as views:
            n = len(pairs)
            self._state.update(fresh)
            self.steps += 1
            for k, (_, g) in enumerate(pairs):
                at = n + k * self._states
                self._step(views[k], g, *views[at : at + self._states])
        for _, g in pairs:
            g.close()

    @abstractmethod
    def _step(self, p: ta.TensorViewMut, g: ta.TensorView, *state: Any) -> None:
        """Update one parameter and its state from its gradient."""


class SGD(_Optimizer):
    """Gradient descent, with momentum as PyTorch defines it.

    Args:
        lr: learning rate, or a function of the number of steps done (from 1).
        momentum: factor of the velocity; 0 keeps no state.
        nesterov: look ahead along the velocity.
        weight_decay: L2 penalty added to the gradient.

    Source: I. Sutskever et al., ICML 2013 (momentum, Nesterov).
    """

    def __init__(
        self,
        lr: float | Callable[[int], float],
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(lr)
        self.momentum = momentum
        self.nesterov = nesterov
        self.weight_decay = weight_decay
        self._states = 1 if momentum else 0

    def _step(self, p: ta.TensorViewMut, g: ta.TensorView, *state: Any) -> None:
        lr, decay = self._rate(), self.weight_decay
        if not state:
            if decay:
                ta.update(p, _sgd_decay, g, lr, decay)
            else:
                ta.update(p, _sgd, g, lr)
            return
        (b,) = state
        ta.update(b, _momentum, g, p, self.momentum, decay)
        if self.nesterov:
            ta.update(p, _nesterov, b, g, lr, self.momentum, decay)
        else:
            ta.update(p, _sgd, b, lr)


class Adam(_Optimizer):
    """Adam with bias correction.

    Args:
        lr: learning rate, or a function of the number of steps done (from 1).
        betas: decay of the first and second moment.
        eps: added to the root of the second moment.
        weight_decay: L2 penalty added to the gradient.

    Source: D. Kingma and J. Ba, arXiv:1412.6980, Algorithm 1.
    """

    _states = 2

    def __init__(
        self,
        lr: float | Callable[[int], float] = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(lr)
        self.betas = betas
        self.eps = eps
        self.weight_decay = weight_decay

    def _step(self, p: ta.TensorViewMut, g: ta.TensorView, *state: Any) -> None:
        m, v = state
        (b1, b2), t = self.betas, self.steps
        ta.update(m, _first, g, p, b1, self.weight_decay)
        ta.update(v, _second, g, p, b2, self.weight_decay)
        step = self._rate() / (1.0 - b1**t)
        root = 1.0 / (1.0 - b2**t) ** 0.5
        ta.update(p, _adam, m, v, step, root, self.eps)
