"""Stochastic gradient descent and Adam."""

from __future__ import annotations

import math
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


def _check(name: str, value: float, low: float, high: float) -> None:
    """Refuse a setting outside [low, high)."""
    number = isinstance(value, int | float)
    if not number or not low <= value < high:
        raise ta.errors.InvalidArgumentError(
            operation="optimizer",
            argument=name,
            found=repr(value),
            fix=f"use a number from {low:g} to below {high:g}",
        )


class _Optimizer(ABC):
    """Finds gradients, keeps state by variable, updates all parameters or none."""

    _states = 0

    def __init__(self, lr: float | Callable[[int], float]) -> None:
        if not callable(lr):
            _check("lr", lr, 0.0, math.inf)
        self.lr = lr
        self.steps = 0
        self._state: dict[Any, tuple[ta.EagerTensor, ...]] = {}

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
        if not isinstance(grads, ta.Gradients):
            raise ta.errors.InvalidArgumentError(
                operation="update",
                argument="grads",
                found=f"a `{type(grads).__name__}`",
                fix="pass the `Gradients` of `ta.value_and_grad` or `tape.backward`",
            )
        leaves = optree.tree_leaves(params, namespace="tenferro_ad")
        # A tied parameter stands in the tree more than once and is updated once.
        leaves = list({id(w): w for w in leaves}.values())
        steps = self.steps + 1
        rate = self.lr(steps) if callable(self.lr) else self.lr
        pairs = [(w, g) for w in leaves if (g := grads.grad(w)) is not None]
        try:
            states = [
                self._state[w.leaf]
                if w.leaf in self._state
                else tuple(ta.zeros_like(w) for _ in range(self._states))
                for w, _ in pairs
            ]
            flat = [t for state in states for t in state]
            with ta.exclusive(*[w for w, _ in pairs], *flat) as views:
                at = len(pairs)
                for (w, g), p, state in zip(pairs, views, states, strict=False):
                    self._step(p, g, rate, steps, *views[at : at + len(state)])
                    self._state[w.leaf] = state
                    at += len(state)
        finally:
            for _, g in pairs:
                g.close()
        self.steps = steps

    @abstractmethod
    def _step(
        self,
        p: ta.TensorViewMut,
        g: ta.TensorView,
        rate: float,
        steps: int,
        *state: ta.TensorViewMut,
    ) -> None:
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
        _check("momentum", momentum, 0.0, 1.0)
        _check("weight_decay", weight_decay, 0.0, math.inf)
        self.momentum = momentum
        self.nesterov = nesterov
        self.weight_decay = weight_decay
        self._states = 1 if momentum else 0

    def _step(
        self,
        p: ta.TensorViewMut,
        g: ta.TensorView,
        rate: float,
        steps: int,
        *state: ta.TensorViewMut,
    ) -> None:
        decay = self.weight_decay
        if not state:
            if decay:
                ta.update(p, _sgd_decay, g, rate, decay)
            else:
                ta.update(p, _sgd, g, rate)
            return
        (b,) = state
        ta.update(b, _momentum, g, p, self.momentum, decay)
        if self.nesterov:
            ta.update(p, _nesterov, b, g, rate, self.momentum, decay)
        else:
            ta.update(p, _sgd, b, rate)


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
        for name, beta in zip(("betas[0]", "betas[1]"), betas, strict=True):
            _check(name, beta, 0.0, 1.0)
        _check("eps", eps, 0.0, math.inf)
        _check("weight_decay", weight_decay, 0.0, math.inf)
        self.betas = betas
        self.eps = eps
        self.weight_decay = weight_decay

    def _step(
        self,
        p: ta.TensorViewMut,
        g: ta.TensorView,
        rate: float,
        steps: int,
        *state: ta.TensorViewMut,
    ) -> None:
        m, v = state
        b1, b2 = self.betas
        ta.update(m, _first, g, p, b1, self.weight_decay)
        ta.update(v, _second, g, p, b2, self.weight_decay)
        step = rate / (1.0 - b1**steps)
        root = 1.0 / (1.0 - b2**steps) ** 0.5
        ta.update(p, _adam, m, v, step, root, self.eps)
