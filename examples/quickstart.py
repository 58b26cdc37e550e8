"""A first tour: values, gradients, ownership, and a ledger of every byte.

Run it with `python examples/quickstart.py`; it needs nothing beyond the package.
"""

import numpy as np

import tenferro_ad as ta

rng = np.random.default_rng(0)

print("Values and gradients\n")
x = ta.asarray(rng.standard_normal((8, 3)))  # a constant: one recorded copy
target = ta.asarray(rng.standard_normal((8, 1)))
w = ta.variable(rng.standard_normal((3, 1)))  # a differentiable leaf

with ta.ledger() as led:
    with ta.Tape() as tape:
        error = ta.tanh(x @ w) - target
        loss = ta.sum(error * error)
    grads = tape.backward(loss)
print("loss    ", round(loss.item(), 6))
print("gradient", grads.grad(w).numpy().ravel().round(4))

print("\nWhere the bytes of that step went\n")
print(led.report())  # keeping a value for the backward pass copies nothing

print("\nMoving a value out\n")
y = ta.tanh(x)
other = y.clone()  # another handle on the same value, not a copy
try:
    y.into_value()
except ta.errors.NotUniqueError as refused:
    print(refused)
del other
print(y.into_value())  # the last holder moves the owner out, without a copy

print("\nRecomputing instead of keeping\n")
square = ta.variable(rng.standard_normal((64, 64)) / 8)


def deep(h):
    for _ in range(10):
        h = ta.tanh(h @ square)
    return ta.sum(h)


for name, f in {"kept": deep, "recomputed": ta.checkpoint(deep)}.items():
    with ta.Tape() as tape:
        loss = f(ta.asarray(np.ones((256, 64))))
        kept = sum(value.nbytes for value in tape.retained())
    print(f"{name:<12}{kept:>12,} bytes wait for the backward pass")
