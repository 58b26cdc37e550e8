"""Train a small convolutional network on scikit-learn's handwritten digits.

    python examples/train_digits.py [--split ordered] [--seed 1] [--epochs 25]
                                    [--device NAME] [--compile]

The data ships with scikit-learn: 1,797 images of 8 x 8 from 43 writers. `shuffled`
mixes writers over both parts; `ordered` tests on the last 360, by other writers.
The network's block is a checkpoint: backward runs it again, one block at a time,
instead of keeping its inside. At the end one more step runs with and without it, and
the ledger says what each allocated, copied and held at its peak. `--compile` runs each
step as one compiled program, whose results take over the memory of the parameters and
of the optimizer's state. `--device` takes a name that `ta.devices()` shows; values in
flight there count for the peak until their work is proven to have ended.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import tenferro_ad as ta
from tenferro_ad import nn

Array = np.ndarray[Any, Any]
Params = dict[str, list[ta.EagerTensor]]
Block = Callable[..., ta.EagerTensor]
TRAIN, TEST, BATCH = 1437, 360, 64
CHANNELS, CLASSES = (24, 32), 10


# ---- data ----------------------------------------------------------------------------


def load(split: str, seed: int) -> tuple[Array, Array]:
    """Images (1797, 1, 8, 8) from 0 to 1 and labels; the test part is at the end."""
    digits = load_digits()
    order = np.arange(TRAIN + TEST)
    if split == "shuffled":
        order = np.random.default_rng(seed).permutation(order)
    images = (digits.images[order] / 16.0).astype(np.float32)
    return images[:, None], digits.target[order]


def shifted(images: Array, rng: np.random.Generator) -> Array:
    """Each image moved by up to one pixel in each direction."""
    n, _, h, w = images.shape
    wide = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = np.empty_like(images)
    down, right = rng.integers(0, 3, (2, n))
    for a in range(3):
        for b in range(3):
            chosen = (down == a) & (right == b)
            out[chosen] = wide[chosen, :, a : a + h, b : b + w]
    return out


def batches(
    images: Array, labels: Array, rng: np.random.Generator, device: str
) -> Iterator[tuple[ta.EagerTensor, ta.EagerTensor]]:
    """One epoch of augmented batches; each comes in through two recorded transfers."""
    order = rng.permutation(len(images))
    moved = shifted(images[order], rng)
    for start in range(0, len(images) - BATCH + 1, BATCH):
        part = slice(start, start + BATCH)
        yield (
            ta.asarray(moved[part], device=device),
            ta.asarray(labels[order][part], device=device),
        )


# ---- model ---------------------------------------------------------------------------


def initial(rng: np.random.Generator) -> Params:
    """Weights for rectified units (He et al. 2015) and zero biases."""

    def layer(*shape: int) -> list[ta.EagerTensor]:
        scale = math.sqrt(2 / math.prod(shape[1:]))
        w = (scale * rng.standard_normal(shape)).astype(np.float32)
        return [ta.variable(w), ta.variable(np.zeros(shape[0], np.float32))]

    n, top = CHANNELS
    return {
        "first": [*layer(n, 1, 3, 3), *layer(n, n, 3, 3)],
        "second": [*layer(n, n, 3, 3), *layer(n, n, 3, 3)],
        "top": layer(top, n, 3, 3),
        "head": layer(CLASSES, top * 4 * 4),
    }


def block(
    x: ta.EagerTensor,
    w1: ta.EagerTensor,
    b1: ta.EagerTensor,
    w2: ta.EagerTensor,
    b2: ta.EagerTensor,
) -> ta.EagerTensor:
    """Two convolutions with rectifiers."""
    h = nn.relu(nn.conv2d(x, w1, b1, padding=1))
    return nn.relu(nn.conv2d(h, w2, b2, padding=1))


checkpointed = ta.checkpoint(block)


def logits(params: Params, x: ta.EagerTensor, block: Block) -> ta.EagerTensor:
    h = block(x, *params["first"])
    h = nn.max_pool2d(block(h, *params["second"]), 2)
    h = nn.relu(nn.conv2d(h, *params["top"], padding=1))
    return nn.linear(ta.reshape(h, (h.shape[0], -1)), *params["head"])


def step(
    params: Params,
    optimizer: ta.optim.Adam,
    x: ta.EagerTensor,
    y: ta.EagerTensor,
    block: Block = checkpointed,
) -> ta.EagerTensor:
    """Forward, backward, update; gives the loss."""
    loss_of = ta.value_and_grad(
        lambda params: nn.cross_entropy(logits(params, x, block), y)
    )
    loss, grads = loss_of(params)
    optimizer.update(params, grads)
    return loss  # type: ignore[no-any-return]


def compiled_step(
    optimizer: ta.optim.Adam, block: Block = checkpointed
) -> Callable[..., tuple[Params, dict[str, Any], ta.EagerTensor]]:
    """`step` as one program; gives new parameters, new state, and the loss."""

    def run(params: Params, state: Any, x: Any, y: Any, rate: Any) -> Any:
        def loss_twice(params: Params) -> Any:
            loss = nn.cross_entropy(logits(params, x, block), y)
            return loss, loss

        grads, loss = ta.grad(loss_twice, has_aux=True)(params)
        params, state = optimizer.apply(params, grads, state, rate)
        return params, state, loss

    return ta.compile(run, donate_argnums=(0, 1))


def accuracy(params: Params, images: Array, labels: Array, device: str) -> float:
    """Percent of images whose largest logit is their label's."""
    scores = logits(params, ta.asarray(images, device=device), block)
    with scores.value() as value:
        return float(100 * np.mean(value.numpy().argmax(1) == labels))


def train(
    split: str,
    seed: int,
    epochs: int,
    device: str,
    rate: float = 3e-3,
    *,
    compiled: bool = False,
) -> tuple[Params, ta.optim.Adam, float]:
    """A trained network, its optimizer, and its test accuracy in percent."""
    images, labels = load(split, seed)
    rng = np.random.default_rng(seed)
    params = initial(rng)
    total = epochs * (TRAIN // BATCH)

    def schedule(t: int) -> float:
        return rate * 0.5 * (1 + math.cos(math.pi * (t - 1) / total))

    optimizer = ta.optim.Adam(schedule)
    run, state = compiled_step(optimizer), optimizer.init(params)
    with tqdm(total=total, unit="step", desc=f"{split}, seed {seed}") as bar:
        for _ in range(epochs):
            for x, y in batches(images[:TRAIN], labels[:TRAIN], rng, device):
                bar.update()
                if compiled:
                    now = np.float32(schedule(bar.n))
                    params, state, loss = run(params, state, x, y, now)
                else:
                    loss = step(params, optimizer, x, y)
            bar.set_postfix(loss=f"{loss.item():.4f}")
    return params, optimizer, accuracy(params, images[TRAIN:], labels[TRAIN:], device)


# ---- report --------------------------------------------------------------------------


def ledger_of(
    params: Params, x: ta.EagerTensor, y: ta.EagerTensor, block: Block, compiled: bool
) -> ta.LedgerScope:
    """The ledger of one step, after one that is not counted."""
    optimizer = ta.optim.Adam(1e-3)
    fresh = {
        name: [ta.variable(p.duplicate_value()) for p in layer]
        for name, layer in params.items()
    }
    if not compiled:
        step(fresh, optimizer, x, y, block).item()
        with ta.ledger() as led:
            step(fresh, optimizer, x, y, block).item()
        return led
    run = compiled_step(optimizer, block)
    rate = ta.asarray(np.float32(1e-3), device=x.device)
    fresh, state, loss = run(fresh, optimizer.init(fresh), x, y, rate)
    loss.item()  # work in flight would keep what it holds
    with ta.ledger() as led:
        run(fresh, state, x, y, rate)
    return led


def show_ledger(params: Params, device: str, compiled: bool) -> None:
    """One steady-state step, with and without the checkpoint."""
    images, labels = load("ordered", 0)
    x = ta.asarray(images[:BATCH], device=device)
    y = ta.asarray(labels[:BATCH], device=device)
    ledgers = [ledger_of(params, x, y, b, compiled) for b in (checkpointed, block)]
    reasons = sorted({r for led in ledgers for r in led.allocations}, key=str)
    rows: list[tuple[str, list[Any]]] = [
        (f"allocations: {r}", [led.allocations[r] for led in ledgers]) for r in reasons
    ]
    rows += [
        ("copies", [sum(led.copies.values()) or "none" for led in ledgers]),
        ("peak live bytes", [f"{led.peak_bytes:,}" for led in ledgers]),
        ("workspace bytes", [f"{led.workspace:,}" for led in ledgers]),
    ]
    kind = "compiled step" if compiled else "step"
    print(f"\nledger of one steady-state {kind} (forward, backward, update)")
    print(f"{'':42}{'checkpoint':>14}{'without':>14}")
    for name, values in rows:
        print(f"{name:42}" + "".join(f"{v!s:>14}" for v in values))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--split", choices=("shuffled", "ordered"), default="shuffled")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument(
        "--device", default="cpu", help="a name that `ta.devices()` shows"
    )
    parser.add_argument("--compile", action="store_true", help="compile each step")
    args = parser.parse_args()
    began = time.perf_counter()
    with ta.default_device(args.device):
        params, _, percent = train(
            args.split, args.seed, args.epochs, args.device, compiled=args.compile
        )
    seconds = time.perf_counter() - began
    print(f"\ntrained on {TRAIN} images in {seconds:.1f} s, tested on {TEST}")
    print(f"test accuracy: {percent:.2f} % ({args.split} split)")
    show_ledger(params, args.device, args.compile)


if __name__ == "__main__":
    main()
