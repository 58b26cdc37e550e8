"""Stochastic gradient descent and Adam: in place, and as functions for compiled steps.

A step is written once, over `put`: what brings a kernel's result to where its first
operand is. In place that is `ta.update` into an exclusive view; as a function it is the
kernel's output, which a compiled step writes over a donated input.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import optree

import tenferro_ad as ta

from ._arguments import (
    TREES,
    check,
    misfit,
    moment,
    need_real,
    paired,
    shape_of,
    token_of,
)

_sgd = ta.fused(lambda E, p, g, lr: p - lr * g)
_sgd_decay = ta.fused(lambda E, p, g, lr, decay: p - lr * (g + decay * p))
_momentum = ta.fused(lambda E, b, g, p, mu, decay: mu * b + (g + decay * p))
_nesterov = ta.fused(
    lambda E, p, b, g, lr, mu, decay: p - lr * ((g + decay * p) + mu * b)
)
# `share` is 1 - beta, of which a kernel in single precision would lose five digits.
_first = ta.fused(lambda E, m, g, p, share, decay: m + share * (g + decay * p - m))
_second = ta.fused(
    lambda E, v, g, p, beta, share, decay: (
        beta * v + share * ((g + decay * p) * E.conj(g + decay * p))
    )
)
_adam = ta.fused(
    lambda E, p, m, v, step, root, eps: p - step * m / (E.sqrt(v) * root + eps)
)


Put = Callable[..., Any]  # put(target, kernel, *operands): the new target


class _Optimizer(ABC):
    """Finds gradients, keeps state by variable, updates all parameters or none."""

    _states = 0

    def __init__(self, lr: float | Callable[[Any], Any]) -> None:
        if not callable(lr):
            self._check("lr", lr, 0.0, math.inf)
        self.lr = lr
        self.steps = 0
        self._state: dict[Any, tuple[ta.EagerTensor, ...]] = {}

    @classmethod
    def _check(cls, name: str, value: float, low: float, high: float) -> None:
        check(cls.__name__, name, value, low, high)

    @ta.errors.named(key="params", tensors="params")
    def update(self, params: Any, grads: Any) -> None:
        """Change the variables of pytree `params` in place.

        Args:
            params: the variables; those without a gradient stay as they are.
            grads: a bundle, or a pytree like `params` of gradients that were worked on
                (clipped, averaged), with None for those that there are not.

        Raises:
            NotALeafError: a leaf of `params` is no variable.
            InvalidArgumentError: `grads` does not fit `params`; nothing changed.
            NotUniqueError: somebody else holds a parameter; nothing changed.
            BorrowConflictError: an exported array reads a parameter; nothing changed.

        Cost: 0 allocations and 0 copies, but for the state on a variable's first step;
            a few passes over each parameter.
        """
        if isinstance(grads, ta.Gradients):
            leaves = optree.tree_leaves(params, namespace=TREES)
            # A tied parameter stands in the tree more than once and is updated once.
            leaves = list({id(w): w for w in leaves}.values())
            pairs: list[tuple[Any, Any]] = [
                (w, g) for w in leaves if (g := grads.grad(w)) is not None
            ]
        else:
            pairs = paired(params, grads)
        steps = self.steps + 1
        try:
            rate = self.lr(steps) if callable(self.lr) else self.lr
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
                    slots = views[at : at + len(state)]
                    self._step(_in_place, p, g, rate, steps, *slots)
                    self._state[w.leaf] = state
                    at += len(state)
        finally:
            for _, g in pairs:
                if isinstance(g, ta.TensorView):
                    g.close()
        self.steps = steps

    @ta.errors.named()
    def state(self, params: Any) -> dict[str, Any]:
        """What `update` keeps for these variables, as a tree to save.

        It has the form that `init` and `apply` have, and is a copy: later updates do
        not change it. Variables that were not updated yet have zeros.

        Raises:
            NotALeafError: a leaf of `params` is no variable.
            AllocationLimitError: the device has no room for it.

        Cost: copies each moment once.
        """
        leaves, treedef = optree.tree_flatten(params, namespace=TREES)
        kept = [(w, self._state.get(token_of(w, "state"))) for w in leaves]
        columns = [
            [
                ta.zeros_like(w) if own is None else ta.asarray(own[k], copy=True)
                for w, own in kept
            ]
            for k in range(self._states)
        ]
        device = leaves[0].device if leaves else None
        return {
            "steps": ta.full((), self.steps, dtype=ta.int32, device=device),
            "slots": [optree.tree_unflatten(treedef, column) for column in columns],
        }

    @ta.errors.named()
    def restore(self, params: Any, state: Any) -> None:
        """Let `update` go on from a state that `state` gave, perhaps elsewhere.

        Args:
            params: the variables that `update` will be given, a pytree.
            state: for a pytree of that structure and those shapes.

        Raises:
            NotALeafError: a leaf of `params` is no variable.
            InvalidArgumentError: `state` has another structure, or other shapes. If
                anything is refused, nothing changed.
            AllocationLimitError: the device has no room for it.

        Cost: copies each moment once.
        """
        leaves, treedef = optree.tree_flatten(params, namespace=TREES)
        tokens = [token_of(w, "restore") for w in leaves]
        blank = optree.tree_unflatten(treedef, [0] * len(leaves))
        form: Any = {"steps": 0, "slots": [blank] * self._states}
        expected = optree.tree_structure(form, namespace=TREES)
        given = optree.tree_structure(state, namespace=TREES)
        if given != expected:
            raise misfit(f"the structure {given}", f"the structure {expected}")
        columns = [optree.tree_leaves(s, namespace=TREES) for s in state["slots"]]
        made = [
            tuple(moment(part, w) for part in own)
            for w, *own in zip(leaves, *columns, strict=True)
        ]
        steps = int(state["steps"])
        self._state.update(zip(tokens, made, strict=True))
        self.steps = steps

    def init(self, params: Any) -> dict[str, Any]:
        """The state that `apply` begins with: a pytree of tensors.

        Raises:
            IntegerInputError: a parameter is an integer or boolean.
            AllocationLimitError: the device has no room for it.

        Cost: one value of zeros for each parameter and moment; no copies.
        """
        leaves = optree.tree_leaves(params, namespace=TREES)
        for w in leaves:
            need_real("init", w)
        device = ta.asarray(leaves[0]).device if leaves else None
        return {
            "steps": ta.zeros((), dtype=ta.int32, device=device),
            "slots": [
                optree.tree_map(ta.zeros_like, params, namespace=TREES)
                for _ in range(self._states)
            ],
        }

    def apply(
        self, params: Any, grads: Any, state: dict[str, Any], rate: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        """One step as a function: the new parameters and the new state.

        For compiled steps: `ta.compile(step, donate_argnums=...)` lets the results take
        over the memory of `params` and `state`. Nothing is kept in the optimiser.

        Args:
            params: pytree of tensors.
            grads: a pytree like it, as `ta.grad` gives.
            state: what `init` or the last `apply` gave.
            rate: a number or scalar tensor in place of `lr`. An `lr` that is a function
                is called with the number of steps done as a tensor in the widest
                precision of `params`, so it must be written with this package's
                functions.

        Raises:
            InvalidArgumentError: `grads` has another structure than `params`.
            ShapeError: a gradient has another shape than its parameter.
            IntegerInputError: a parameter is an integer or boolean.

        Cost: one output for each parameter and moment; in a compiled step with
            donation none, and one pass over each.
        """
        leaves, treedef = optree.tree_flatten(params, namespace=TREES)
        given, other = optree.tree_flatten(grads, namespace=TREES)
        if treedef != other:
            raise ta.errors.InvalidArgumentError(
                operation="apply",
                argument="grads",
                found=f"the structure {other}",
                fix=f"give it the structure of `params`, {treedef}",
            )
        leaves = [ta.asarray(p) for p in leaves]
        for p, g in zip(leaves, given, strict=True):
            need_real("apply", p)
            if p.shape != shape_of(g):
                raise ta.errors.ShapeError(
                    operation="apply",
                    argument="grads",
                    found=f"shape {shape_of(g)} for a parameter of shape {p.shape}",
                    fix="give each gradient the shape of its parameter",
                )
        steps = state["steps"] + 1
        done = ta.astype(steps, _precision(leaves))
        if rate is None:
            rate = self.lr(done) if callable(self.lr) else self.lr
        slots = [optree.tree_leaves(slot, namespace=TREES) for slot in state["slots"]]
        made = [
            self._step(_as_output, p, g, rate, done, *own)
            for p, g, *own in zip(leaves, given, *slots, strict=True)
        ]
        trees = [
            optree.tree_unflatten(treedef, list(column))
            for column in zip(*made, strict=True)
        ] or [params] * (1 + self._states)
        return trees[0], {"steps": steps, "slots": trees[1:]}

    @abstractmethod
    def _step(
        self, put: Put, p: Any, g: Any, rate: Any, steps: Any, *state: Any
    ) -> tuple[Any, ...]:
        """The new parameter and its new state."""


def _in_place(target: ta.TensorViewMut, kernel: Any, *operands: Any) -> Any:
    ta.update(target, kernel, *operands)
    return target


def _precision(params: list[Any]) -> Any:
    """The widest precision of parameters, and at least single: scalars of a step."""
    real = [ta.finfo(ta.asarray(p).dtype).dtype for p in params]
    return ta.result_type(ta.float32, *real)


def _gone(beta: float, steps: Any) -> Any:
    """1 - beta**steps, without a difference of nearly equal numbers."""
    if isinstance(steps, int) or not beta:
        return 1.0 - beta**steps if beta else 1.0
    return -ta.expm1(steps * math.log(beta))


def _is_scalar(x: Any) -> bool:
    return isinstance(x, ta.EagerTensor) and not x.shape and x.dtype.kind == "f"


def _as_output(target: Any, kernel: Any, *operands: Any) -> Any:
    """The kernel's output; scalars take the precision of the target."""
    real = ta.finfo(target.dtype).dtype
    fitted = [ta.astype(x, real) if _is_scalar(x) else x for x in operands]
    return kernel(target, *fitted)


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
        lr: float | Callable[[Any], Any],
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(lr)
        self._check("momentum", momentum, 0.0, 1.0)
        self._check("weight_decay", weight_decay, 0.0, math.inf)
        self.momentum = momentum
        self.nesterov = nesterov
        self.weight_decay = weight_decay
        self._states = 1 if momentum else 0

    def _step(
        self, put: Put, p: Any, g: Any, rate: Any, steps: Any, *state: Any
    ) -> tuple[Any, ...]:
        decay = self.weight_decay
        if not state:
            if decay:
                return (put(p, _sgd_decay, g, rate, decay),)
            return (put(p, _sgd, g, rate),)
        b = put(state[0], _momentum, g, p, self.momentum, decay)
        if self.nesterov:
            return put(p, _nesterov, b, g, rate, self.momentum, decay), b
        return put(p, _sgd, b, rate), b


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
        lr: float | Callable[[Any], Any] = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(lr)
        if not isinstance(betas, tuple | list) or len(betas) != 2:
            raise ta.errors.InvalidArgumentError(
                operation=type(self).__name__,
                argument="betas",
                found=repr(betas),
                fix="give two numbers, as (0.9, 0.999)",
            )
        for k, beta in enumerate(betas):
            self._check(f"betas[{k}]", beta, 0.0, 1.0)
        self._check("eps", eps, 0.0, math.inf)
        self._check("weight_decay", weight_decay, 0.0, math.inf)
        self.betas = betas
        self.eps = eps
        self.weight_decay = weight_decay

    def _step(
        self, put: Put, p: Any, g: Any, rate: Any, steps: Any, *state: Any
    ) -> tuple[Any, ...]:
        b1, b2 = self.betas
        m = put(state[0], _first, g, p, 1.0 - b1, self.weight_decay)
        v = put(state[1], _second, g, p, b2, 1.0 - b2, self.weight_decay)
        step = rate / _gone(b1, steps)
        root = 1.0 / _gone(b2, steps) ** 0.5
        return put(p, _adam, m, v, step, root, self.eps), m, v
