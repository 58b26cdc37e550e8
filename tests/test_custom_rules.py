"""Functions with derivative rules of their own: `custom_vjp` and `custom_jvp`.

The rules below are unfaithful on purpose (a factor of 2 that the function has not), so
that a result shows whose derivative was taken at each order. JAX decides which it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import (
    DTypeError,
    InactiveTapeError,
    InvalidArgumentError,
    NoRuleError,
    ShapeError,
)
from tenferro_ad.testing import check_grads

jax.config.update("jax_enable_x64", True)
Array = np.ndarray[Any, Any]
X, Y = np.array([0.3, 0.5]), np.array([1.0, 2.0])


def leaves(tree: Any) -> list[Array]:
    if isinstance(tree, tuple):
        return [y for x in tree for y in leaves(x)]
    if isinstance(tree, ta.EagerTensor):
        tree = ta.stop_gradient(tree).tolist()
    return [np.asarray(tree)]


def agree(ours: Any, theirs: Any) -> None:
    a, b = leaves(ours), leaves(theirs)
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert x.shape == y.shape
        scale = max(1.0, float(np.max(np.abs(y), initial=0)))
        assert float(np.max(np.abs(x - y), initial=0)) <= 1e-12 * scale


# ---- the functions -------------------------------------------------------------------
def reverse(m: Any, wrap: Any, *, again: bool) -> Any:
    """sin(x) y; the rule doubles what x gets. With `again`, `fwd` calls it."""

    @wrap
    def f(x: Any, y: Any) -> Any:
        return m.sin(x) * y

    def fwd(x: Any, y: Any) -> Any:
        out = f(x, y) if again else m.sin(x) * y
        return out, (m.cos(x), m.sin(x), y)

    def bwd(res: Any, ct: Any) -> Any:
        c, s, y = res
        return c * ct * y * 2.0, s * ct

    f.defvjp(fwd, bwd)
    return f


def forward(m: Any, wrap: Any) -> Any:
    @wrap
    def f(x: Any, y: Any) -> Any:
        return m.sin(x) * y

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (tx, ty) = primals, tangents
        return f(x, y), m.cos(x) * tx * y * 2.0 + m.sin(x) * ty

    return f


def squares(m: Any, f: Any) -> Callable[..., Any]:
    return lambda x, y: m.sum(f(x, y) ** 2)


def looped(m: Any, f: Any) -> Callable[..., Any]:
    """Three steps: a scan for us. JAX's own scan takes other rules at second order than
    its unrolled loop does; ours agrees with the latter."""

    def step(c: Any, y: Any) -> Any:
        return f(c, y)

    def loss(x: Any, y: Any) -> Any:
        if m is ta:
            return ta.sum(ta.scan(lambda c, _: (step(c, y), None), x, None, 3)[0])
        return m.sum(step(step(step(x, y), y), y))

    return loss


PROGRAMS: dict[str, Callable[..., Any]] = {"squares": squares, "looped": looped}


def slopes(m: Any, grad: Any, g: Any) -> Callable[..., Any]:
    return lambda x, y: sum(m.sum(z * z) for z in grad(g, (0, 1))(x, y))


MODES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: f,
    "traced": lambda f: ta.trace(f, X, Y),
    "checkpointed": ta.checkpoint,
    "compiled": ta.compile,
    "traced, checkpointed": lambda f: ta.checkpoint(ta.trace(f, X, Y)),
    "checkpointed, traced": lambda f: ta.trace(ta.checkpoint(f), X, Y),
}
every_mode = pytest.mark.parametrize("mode", list(MODES))
both_kinds = pytest.mark.parametrize("kind", ["reverse", "forward"])


def pair(kind: str, *, again: bool = False) -> tuple[Any, Any]:
    if kind == "forward":
        return forward(ta, ta.custom_jvp), forward(jnp, jax.custom_jvp)
    return (
        reverse(ta, ta.custom_vjp, again=again),
        reverse(jnp, jax.custom_vjp, again=again),
    )


# ---- agreement with JAX --------------------------------------------------------------
@every_mode
@both_kinds
@pytest.mark.parametrize("program", list(PROGRAMS))
def test_each_order_takes_the_rule_that_jax_takes(
    mode: str, kind: str, program: str
) -> None:
    ours, theirs = pair(kind)
    plain, g = PROGRAMS[program](ta, ours), PROGRAMS[program](jnp, theirs)
    f: Any = MODES[mode](plain)
    agree(f(X, Y), g(X, Y))
    if mode == "compiled":
        compiled = ta.compile(ta.grad(plain, (0, 1)))
        agree(compiled(X, Y), jax.grad(g, (0, 1))(X, Y))
        return
    agree(ta.grad(f, (0, 1))(X, Y), jax.grad(g, (0, 1))(X, Y))
    agree(ta.trace(ta.grad(f, (0, 1)), X, Y)(X, Y), jax.grad(g, (0, 1))(X, Y))
    agree(
        ta.grad(slopes(ta, ta.grad, f), (0, 1))(X, Y),
        jax.grad(slopes(jnp, jax.grad, g), (0, 1))(X, Y),
    )
    agree(
        ta.hvp(f, (X, Y), (Y, X))[1],
        jax.jvp(jax.grad(g, (0, 1)), (X, Y), (Y, X))[1],
    )
    if kind == "forward":
        agree(ta.jvp(f, (X, Y), (Y, X)), jax.jvp(g, (X, Y), (Y, X)))
        agree(ta.linearize(f, X, Y)[1](Y, X), jax.linearize(g, X, Y)[1](Y, X))
    else:
        with pytest.raises(NoRuleError, match="forward mode"):
            ta.jvp(f, (X, Y), (Y, X))


@pytest.mark.parametrize("mode", ["eager", "traced", "checkpointed"])
@both_kinds
def test_many_examples(mode: str, kind: str) -> None:
    ours, theirs = pair(kind)
    f, g = MODES[mode](squares(ta, ours)), squares(jnp, theirs)
    xs = np.stack([X, Y, X * Y])
    agree(
        ta.vmap(ta.grad(f, (0, 1)), (0, None))(xs, Y),
        jax.vmap(jax.grad(g, (0, 1)), (0, None))(xs, Y),
    )
    total = ta.grad(lambda a, b: ta.sum(ta.vmap(f, (0, None))(a, b)), (0, 1))
    wanted = jax.grad(lambda a, b: jnp.sum(jax.vmap(g, (0, None))(a, b)), (0, 1))
    agree(total(xs, Y), wanted(xs, Y))


@pytest.mark.parametrize("mode", ["eager", "traced", "checkpointed"])
def test_a_rule_may_apply_its_function(mode: str) -> None:
    ours, theirs = pair("reverse", again=True)
    f, g = MODES[mode](squares(ta, ours)), squares(jnp, theirs)
    agree(ta.grad(f, (0, 1))(X, Y), jax.grad(g, (0, 1))(X, Y))
    second, wanted = slopes(ta, ta.grad, f), slopes(jnp, jax.grad, g)
    agree(ta.grad(second, (0, 1))(X, Y), jax.grad(wanted, (0, 1))(X, Y))
    third, more = slopes(ta, ta.grad, second), slopes(jnp, jax.grad, wanted)
    agree(third(X, Y), more(X, Y))
    with pytest.raises(NoRuleError, match="forward mode"):
        ta.hvp(f, (X, Y), (X, Y))  # the function again, this time in forward mode


def test_orders_beyond_what_was_traced_are_refused() -> None:
    @ta.custom_vjp
    def f(x: Any) -> Any:
        return ta.exp(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * f(x),))
    x = np.float64(0.5)
    g: Any = ta.trace(f, x)
    for order in range(3):
        g = ta.grad(g)
        agree(g(x), np.exp(0.5)), order
    with pytest.raises(NoRuleError, match="higher order"):
        ta.grad(g)(x)
    h: Any = f
    for _ in range(4):  # no limit where nothing is traced
        h = ta.grad(h)
    agree(h(x), np.exp(0.5))


# ---- eager work ----------------------------------------------------------------------
def test_a_rule_may_look_at_values() -> None:
    """In eager work the user's functions run as they are."""
    seen: list[Any] = []

    @ta.custom_vjp
    def clipped(x: Any) -> Any:
        return x * 3.0

    def fwd(x: Any) -> Any:
        seen.append(x.tolist())
        return (x * 3.0 if x.tolist()[0] > 0 else x), "fixed"

    def bwd(res: Any, ct: Any) -> Any:
        seen.append((res, float(ta.max(ct))))
        return (np.clip(ct.numpy(), -1, 1),)

    clipped.defvjp(fwd, bwd)
    g = ta.grad(lambda x: ta.sum(clipped(x) * np.array([0.5, 4.0])))
    agree(g(np.array([1.0, 2.0])), np.array([0.5, 1.0]))
    assert seen == [[1.0, 2.0], ("fixed", 4.0)]
    clipped(np.array([-1.0, 2.0]))  # nothing is differentiated: neither rule runs
    assert len(seen) == 2


def test_a_tape_keeps_the_residuals_and_nothing_else() -> None:
    f = reverse(ta, ta.custom_vjp, again=False)
    x, y = ta.variable(X), ta.asarray(Y)
    with ta.ledger() as ledger, ta.Tape() as tape:
        out = f(x, y)
        kept = [(k.operation, k.value, k.nbytes) for k in tape.retained()]
        assert kept == [("custom_vjp", f"res[{i}]", 16) for i in range(3)]
        assert ledger.live == 3  # out, cos(x), sin(x); y was there before
    seed = ta.asarray(np.ones(2))
    with ta.ledger() as ledger:
        grads = tape.backward(out, cotangent=seed)
    # Four products for x and y, and a buffer of its own for the gradient of x.
    ledger.expect(allocations={"OperationOutput": 5}, copies={})
    agree(grads.take_grad(x).as_view().numpy(), np.cos(X) * Y * 2)
    del out, grads
    assert ledger.live == 0


def test_a_traced_program_keeps_the_same() -> None:
    f = reverse(ta, ta.custom_vjp, again=False)
    program = ta.trace(f, X, Y)
    x, y = ta.variable(X), ta.variable(Y)
    with ta.Tape() as tape:
        out = program(x, y)
        kept = [(k.operation, k.value) for k in tape.retained()]
        assert kept == [("custom_vjp", f"residual {i}") for i in range(3)]
    grads = tape.backward(out, cotangent=ta.asarray(np.ones(2)))
    agree(grads.take_grad(y).as_view().numpy(), np.sin(X))


def test_a_forward_rule_keeps_what_its_transpose_reads() -> None:
    @ta.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defjvp(lambda p, t: (f(*p), t[0] * p[1] + p[0] * t[1]))
    x, y = ta.variable(X), ta.asarray(Y)
    with ta.Tape() as tape:
        out = f(x, y)
        kept = [(k.operation, k.value) for k in tape.retained()]
        assert kept == [("custom_jvp", "operands[1]")]
    grads = tape.backward(out, cotangent=ta.asarray(np.ones(2)))
    agree(grads.take_grad(x).as_view().numpy(), Y)


def test_a_gradient_is_no_value_that_somebody_holds() -> None:
    """A rule may hand out a constant: the sweep must not add into it."""
    constant = ta.asarray(np.array([1.0, 1.0]))

    @ta.custom_vjp
    def f(x: Any) -> Any:
        return x * 2.0

    f.defvjp(lambda x: (x * 2.0, None), lambda res, ct: (constant,))
    x = ta.variable(X)
    with ta.Tape() as tape:
        loss = ta.sum(f(ta.exp(x)) + ta.exp(x) + f(x))
    grads = tape.backward(loss)
    agree(constant, np.array([1.0, 1.0]))
    with grads.grad(x) as view:
        agree(np.array(view.numpy()), np.exp(X) * 2 + 1)


# ---- what functions take and give ----------------------------------------------------
@pytest.mark.parametrize("mode", [m for m in MODES if m != "compiled"])
def test_pytrees_fixed_arguments_and_defaults(mode: str) -> None:
    def power(n: int, tree: Any, scale: Any = 2.0) -> Any:
        return {"out": tree["a"] ** n * scale, "sum": ta.sum(tree["b"])}

    f = ta.custom_vjp(power, nondiff_argnums=(0,))

    def fwd(n: int, tree: Any, scale: Any) -> Any:
        return power(n, tree, scale), {"a": tree["a"], "scale": scale}

    def bwd(n: int, res: Any, ct: Any) -> Any:
        a = res["a"] ** (n - 1) * n * res["scale"] * ct["out"]
        return {"a": a, "b": None}, None

    f.defvjp(fwd, bwd)

    def loss(x: Any, y: Any) -> Any:
        out = f(3, {"a": x, "b": y})
        return (
            ta.sum(out["out"])
            + out["sum"] * 0.5
            + ta.sum(f(2, {"a": y, "b": x})["out"])
        )

    g = MODES[mode](loss)
    agree(ta.grad(g, (0, 1))(X, Y), (6 * X**2, 4 * Y))
    assert f.__name__ == "power"


def test_arguments_by_name_and_methods() -> None:
    class Model:
        def __init__(self) -> None:
            self.calls = 0

        @ta.custom_jvp
        def apply(self, x: Any, y: Any) -> Any:
            self.calls += 1
            return x * y

    Model.apply = ta.custom_jvp(Model.apply._f, (0,))  # type: ignore[method-assign]
    Model.apply.defjvp(lambda self, p, t: (p[0] * p[1], t[0] * p[1] + p[0] * t[1]))
    model = Model()
    agree(ta.grad(lambda x: ta.sum(model.apply(x, y=Y)))(X), Y)
    assert model.calls


def test_integers_have_no_derivative() -> None:
    @ta.custom_vjp
    def take(x: Any, i: Any) -> Any:
        return x[i], i + 1

    take.defvjp(
        lambda x, i: ((x[i], i + 1), (ta.zeros_like(x), i)),
        lambda res, ct: (res[0].at[res[1]].add(ct[0] * 10.0), None),
    )
    i = np.array([1, 1, 0])
    for f in (take, ta.checkpoint(take), ta.trace(take, X, i)):
        agree(ta.grad(lambda x, f=f: ta.sum(f(x, i)[0]))(X), np.array([10.0, 20.0]))
    assert take(X, i)[1].tolist() == [2, 2, 1]


def test_complex_cotangents_follow_the_convention() -> None:
    @ta.custom_vjp
    def f(z: Any) -> Any:
        return z * z

    f.defvjp(lambda z: (z * z, z), lambda z, ct: (ct * ta.conj(2.0 * z),))
    z = np.array([1 + 2j, 0.5 - 1j])
    for g in (f, ta.trace(f, z)):
        check_grads(g, (z,), order=1, modes=("rev",))

    h = ta.custom_jvp(lambda z: z * z)
    h.defjvp(lambda p, t: (p[0] * p[0], 2.0 * p[0] * t[0]))
    check_grads(h, (z,), order=2)


def test_rules_in_every_kind_of_control_flow() -> None:
    f = forward(ta, ta.custom_jvp)
    g = forward(jnp, jax.custom_jvp)
    ours = lambda x, y: ta.sum(ta.cond(ta.sum(x) > 0, f, lambda x, y: x * y, x, y))
    theirs = lambda x, y: jnp.sum(
        jax.lax.cond(jnp.sum(x) > 0, g, lambda x, y: x * y, x, y)
    )
    for h in (ours, ta.trace(ours, X, Y)):
        agree(ta.grad(h, (0, 1))(X, Y), jax.grad(theirs, (0, 1))(X, Y))
    steps = lambda m, w, f: (
        lambda x, y: m.sum(
            w(lambda s: s[1] < 3, lambda s: (f(s[0], y), s[1] + 1), (x, 0))[0]
        )
    )
    ours, theirs = steps(ta, ta.while_loop, f), steps(jnp, jax.lax.while_loop, g)
    for h in (ours, ta.trace(ours, X, Y)):
        agree(ta.jvp(h, (X, Y), (Y, X)), jax.jvp(theirs, (X, Y), (Y, X)))


# ---- faults --------------------------------------------------------------------------
def with_rule(fwd: Any, bwd: Any) -> Any:
    f = ta.custom_vjp(lambda x, y: x * y)
    f.defvjp(fwd, bwd)
    return f


GOOD_FWD: Any = lambda x, y: (x * y, (x, y))
GOOD_BWD: Any = lambda res, ct: (ct * res[1], ct * res[0])
VJP_FAULTS: list[tuple[str, Any, Any, type[Exception], str]] = [
    ("no pair", lambda x, y: x * y, GOOD_BWD, InvalidArgumentError, "fwd.*EagerTensor"),
    ("three", lambda x, y: (x, y, x), GOOD_BWD, InvalidArgumentError, "fwd.*of 3"),
    ("one cotangent", GOOD_FWD, lambda r, ct: (ct,), InvalidArgumentError,
     "1 cotangents for 2"),
    ("no tuple", GOOD_FWD, lambda r, ct: ct, InvalidArgumentError, "for 2 arguments"),
    ("structure", GOOD_FWD, lambda r, ct: ({"a": ct}, ct), InvalidArgumentError,
     "structure"),
    ("shape", GOOD_FWD, lambda r, ct: (ct, ct[:1]), ShapeError, r"bwd \(argument 1\)"),
    ("dtype", GOOD_FWD, lambda r, ct: (ta.astype(ct, np.float32), ct), DTypeError,
     r"bwd \(argument 0\)"),
]  # fmt: skip
modes_of_fault = pytest.mark.parametrize("mode", ["eager", "traced", "checkpointed"])


@modes_of_fault
@pytest.mark.parametrize(
    ("fwd", "bwd", "error", "text"),
    [f[1:] for f in VJP_FAULTS],
    ids=[f[0] for f in VJP_FAULTS],
)
def test_reverse_rules_give_what_they_must(
    mode: str, fwd: Any, bwd: Any, error: type[Exception], text: str
) -> None:
    f = with_rule(fwd, bwd)
    with pytest.raises(error, match=text):
        ta.grad(MODES[mode](squares(ta, f)), (0, 1))(X, Y)


@pytest.mark.parametrize("mode", ["traced", "checkpointed"])
def test_fwd_gives_what_the_function_gives(mode: str) -> None:
    for fwd, error in (
        (lambda x, y: ((x, y), None), InvalidArgumentError),
        (lambda x, y: (x[:1], None), ShapeError),
        (lambda x, y: (ta.astype(x, np.float32), None), DTypeError),
    ):
        with pytest.raises(error, match="fwd"):
            ta.grad(MODES[mode](squares(ta, with_rule(fwd, GOOD_BWD))), (0, 1))(X, Y)


JVP_FAULTS: list[tuple[str, Any, type[Exception], str]] = [
    ("no pair", lambda p, t: p[0], InvalidArgumentError, "defjvp"),
    ("structure", lambda p, t: ((p[0], p[1]), t[0]), InvalidArgumentError, "defjvp"),
    ("tangents", lambda p, t: (p[0], (t[0], t[1])), InvalidArgumentError,
     "structure"),
    ("shape", lambda p, t: (p[0], t[0][:1]), ShapeError, "tangent"),
    ("dtype", lambda p, t: (p[0], ta.astype(t[0], np.float32)), DTypeError, "tangent"),
    ("not linear", lambda p, t: (p[0], t[0] * t[0]), InvalidArgumentError, "linear"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "error", "text"),
    [f[1:] for f in JVP_FAULTS],
    ids=[f[0] for f in JVP_FAULTS],
)
def test_forward_rules_give_what_they_must(
    rule: Any, error: type[Exception], text: str
) -> None:
    f = ta.custom_jvp(lambda x, y: x * y)
    f.defjvp(rule)
    with pytest.raises(error, match=text):
        ta.grad(squares(ta, f), (0, 1))(X, Y)


def test_a_rule_must_be_there() -> None:
    for wrap, how in ((ta.custom_vjp, "defvjp"), (ta.custom_jvp, "defjvp")):
        with pytest.raises(InvalidArgumentError, match=how):
            wrap(lambda x: x)(X)


def test_fixed_arguments_exist() -> None:
    f = ta.custom_vjp(lambda x: x, nondiff_argnums=(3,))
    f.defvjp(lambda x: (x, None), lambda res, ct: (ct,))
    with pytest.raises(InvalidArgumentError, match="nondiff_argnums"):
        f(X)

    def g(x: Any, *, n: int) -> Any:
        return x

    h = ta.custom_jvp(g)
    h.defjvp(lambda p, t: (p[0], t[0]))
    with pytest.raises(InvalidArgumentError, match="keyword-only"):
        h(X, n=2)


@both_kinds
@pytest.mark.parametrize("leaf", [True, False])
@modes_of_fault
def test_what_a_function_closes_over_must_not_need_a_gradient(
    mode: str, leaf: bool, kind: str
) -> None:
    """It would be zero, silently: the rule says nothing of it."""
    w = ta.variable(Y)

    def program(x: Any) -> Any:
        v = w if leaf else w * 2.0
        if kind == "reverse":
            f: Any = ta.custom_vjp(lambda x: x * v)
            f.defvjp(lambda x: (x * v, x), lambda x, ct: (ct,))
        else:
            f = ta.custom_jvp(lambda x: x * v)
            f.defjvp(lambda p, t: (p[0] * v, t[0]))
        return ta.sum(f(x))

    x = ta.variable(X)
    with (
        ta.Tape(),
        pytest.raises(
            (InvalidArgumentError, InactiveTapeError), match="closes over|not active"
        ),
    ):
        if mode == "eager":
            program(x)
        elif mode == "checkpointed":
            ta.checkpoint(program)(x)
        else:
            ta.trace(program, X)(x)


def test_forward_rules_may_be_given_argument_by_argument() -> None:
    """They add up; None adds nothing. Both factors of each rule are told apart."""
    f = ta.custom_jvp(lambda x, y: ta.sin(x) * y)
    f.defjvps(
        lambda t, out, x, y: 2.0 * t * ta.cos(x) * y, lambda t, out, x, y: t * out
    )
    x, y = np.float64(0.5), np.float64(3.0)
    slopes = 2.0 * np.cos(x) * y, np.sin(x) * y
    for run in (ta.grad(f, (0, 1)), ta.compile(ta.grad(f, (0, 1)))):
        assert np.allclose([float(g) for g in run(x, y)], slopes, rtol=1e-14)
    assert np.isclose(float(ta.jvp(f, (x, y), (1.0, 1.0))[1]), sum(slopes))
    assert np.isclose(float(ta.grad(ta.grad(f))(x, y)), -2.0 * np.sin(x) * y)

    pair = ta.custom_jvp(lambda x, y: (x * y, {"y": y}))
    pair.defjvps(None, lambda t, out, x, y: (3.0 * t, {"y": t}))
    _, pushed = ta.jvp(pair, (x, y), (1.0, 1.0))
    assert (float(pushed[0]), float(pushed[1]["y"])) == (3.0, 1.0)
    pair.defjvps(None, None)
    assert float(ta.grad(lambda x: pair(x, x)[0])(x)) == 0.0


def test_forward_rules_argument_by_argument_refuse_what_does_not_fit() -> None:
    f = ta.custom_jvp(lambda x: x)
    f.defjvps(None, None)
    with pytest.raises(InvalidArgumentError, match="2 rules for 1 arguments"):
        ta.grad(f)(np.float64(1.0))
    with pytest.raises(DTypeError, match=r"rules\[0\]"):
        f.defjvps(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="nondiff_argnums"):
        ta.custom_jvp(lambda x, n: x, nondiff_argnums=1).defjvps(None)
