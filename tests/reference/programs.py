"""Random small programs over the public functions, for any array namespace.

A program is a list of calls by name; `run(xp, inputs)` runs it with the functions of
`xp`, which may be this package or `jax.numpy`: both follow the array API standard.
Values are kept smooth and of moderate size, so that agreement can be asked to 1e-10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Apply = Callable[..., Any]

# name: (how many operands, function of the namespace and the operands)
_UNARY: dict[str, Apply] = {
    "tanh": lambda xp, x: xp.tanh(x),
    "sin": lambda xp, x: xp.sin(x),
    "exp": lambda xp, x: xp.exp(xp.tanh(x)),
    "log": lambda xp, x: xp.log(1.5 + xp.square(x)),
    "log1p": lambda xp, x: xp.log1p(xp.square(x)),
    "expm1": lambda xp, x: xp.expm1(xp.sin(x)),
    "sqrt": lambda xp, x: xp.sqrt(xp.square(x) + 0.5),
    "negative": lambda xp, x: xp.negative(x),
    "abs": lambda xp, x: xp.abs(x) * 0.5,
    "atan": lambda xp, x: xp.atan(x),
    "power": lambda xp, x: xp.cos(x) ** 3,
    "clip": lambda xp, x: xp.clip(x, -0.77, 0.83) + 0.1 * x,
    "where": lambda xp, x: xp.where(x > 0.125, x * 0.5, xp.sin(x)),
    "flip": lambda xp, x: xp.flip(x),
    "roll": lambda xp, x: xp.roll(x, 1),
    "reshape": lambda xp, x: xp.tanh(xp.reshape(x, (-1,))).reshape(x.shape),
    "expand_dims": lambda xp, x: xp.squeeze(xp.expand_dims(x, axis=0) * x, axis=0),
    "division": lambda xp, x: x / (1.25 + xp.square(x)),
    "fanned": lambda xp, x: x * x + x,
}
_MATRIX: dict[str, Apply] = {
    "permute_dims": lambda xp, x: xp.permute_dims(x, (1, 0)),
    "sum": lambda xp, x: x - 0.25 * xp.sum(x, axis=1, keepdims=True),
    "mean": lambda xp, x: x * xp.mean(x, axis=0),
    "max": lambda xp, x: x - xp.max(x, axis=1, keepdims=True),
    "min": lambda xp, x: x * 0.5 + xp.min(x, axis=0, keepdims=True),
    "prod": lambda xp, x: x + xp.prod(xp.tanh(x), axis=0, keepdims=True),
    "var": lambda xp, x: x / xp.sqrt(1.0 + xp.var(x, axis=1, keepdims=True)),
    "std": lambda xp, x: x - xp.std(x, axis=0, keepdims=True),
    "matmul": lambda xp, x: xp.matmul(x, xp.permute_dims(x, (1, 0))) * 0.2,
    "concat": lambda xp, x: xp.concat([x, 0.5 * x], axis=0)[1 : 1 + x.shape[0]],
    "stack": lambda xp, x: xp.mean(xp.stack([x, x * x], axis=1), axis=1),
    "index": lambda xp, x: xp.concat([x[:, ::-1][:1], x[1:, :]], axis=0),
    "take": lambda xp, x: xp.take(x, xp.arange(3) // 2, axis=0),
    "broadcast_to": lambda xp, x: x + xp.broadcast_to(x[0], x.shape),
    "tril": lambda xp, x: xp.tril(x) + 0.1,
}
_BINARY: dict[str, Apply] = {
    "add": lambda xp, x, y: x + y,
    "subtract": lambda xp, x, y: x - y,
    "multiply": lambda xp, x, y: x * xp.tanh(y),
    "divide": lambda xp, x, y: xp.divide(x, 1.5 + xp.square(y)),
    "maximum": lambda xp, x, y: xp.maximum(x, y),
    "minimum": lambda xp, x, y: xp.minimum(x, 0.1 + y),
    "hypot": lambda xp, x, y: xp.hypot(x, 1.0 + xp.square(y)),
    "logaddexp": lambda xp, x, y: xp.logaddexp(x, y),
    "atan2": lambda xp, x, y: xp.atan2(x, 1.0 + xp.square(y)),
}
FUNCTIONS: dict[str, tuple[int, Apply]] = {
    **{name: (1, fn) for name, fn in (_UNARY | _MATRIX).items()},
    **{name: (2, fn) for name, fn in _BINARY.items()},
}


@dataclass(frozen=True)
class Program:
    """Inputs, then calls: name and operands, by number of the value."""

    inputs: tuple[Array, ...]
    calls: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.calls}

    def run(self, xp: Any, inputs: Sequence[Any]) -> Any:
        """The sum over the tanh of the last value, and of the last but one.

        `xp.programs` may spell a call in another way.
        """
        values, own = list(inputs), getattr(xp, "programs", {})
        for name, at in self.calls:
            fn = own.get(name) or FUNCTIONS[name][1]
            values.append(fn(xp, *[values[i] for i in at]))
        return xp.sum(xp.tanh(values[-1])) + 0.5 * xp.sum(values[-2] * values[-2])

    @staticmethod
    def random(seed: int) -> Program:
        rng = np.random.default_rng(seed)
        shapes: list[Shape] = [(3, 3), (3,), (1, 3), ()]
        inputs = tuple(
            rng.uniform(-1.3, 1.3, shapes[k]) for k in range(rng.integers(1, 5))
        )
        values: list[Array] = list(inputs)
        calls: list[tuple[str, tuple[int, ...]]] = []
        length = int(rng.integers(3, 13))
        while len(calls) < length:
            name = str(rng.choice(list(FUNCTIONS)))
            n, fn = FUNCTIONS[name]
            # Later values are more likely, so that programs are deep and not only wide.
            weights = np.arange(1, len(values) + 1) / sum(range(1, len(values) + 1))
            at = tuple(int(i) for i in rng.choice(len(values), n, p=weights))
            if name in _MATRIX and values[at[0]].shape != (3, 3):
                continue
            found = np.asarray(fn(np, *[values[i] for i in at]))
            if found.shape not in shapes or np.max(np.abs(found)) > 20:
                continue
            calls.append((name, at))
            values.append(found)
        return Program(inputs, tuple(calls))

    def __str__(self) -> str:
        n = len(self.inputs)
        lines = [f"v{k} = input {x.shape}" for k, x in enumerate(self.inputs)]
        lines += [
            f"v{n + k} = {name}({', '.join(f'v{i}' for i in at)})"
            for k, (name, at) in enumerate(self.calls)
        ]
        return "\n".join(lines)
