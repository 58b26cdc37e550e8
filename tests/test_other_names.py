"""Whoever asks for another library's name is told what there is here."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import pytest

import tenferro_ad as ta
from tenferro_ad.engine import _other_names as names

QUOTED = re.compile(r"`(?:ta|x)\.([\w.]+)")


@pytest.mark.parametrize(
    ("room", "name", "said"),
    [
        (ta, "concatenate", "Use `ta.concat`."),
        (ta, "tensor", "Use `ta.asarray`."),
        (ta, "inv", "Use `ta.linalg.inv`."),
        (ta, "Adam", "Use `ta.optim.Adam`."),
        (ta, "no_grad", "Nothing is recorded outside a `ta.Tape()`"),
        (ta, "save", "See guides/saving-and-loading"),
        (ta.linalg, "einsum", "Use `ta.einsum`."),
        (ta.nn, "Linear", "It is a function of its parameters: `ta.nn.linear`."),
        (ta.nn, "Sequential", "A model is a pytree of variables and a function"),
    ],
)
def test_a_module_says_what_there_is_instead(room: Any, name: str, said: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(room, name)
    text = str(caught.value)
    assert text.startswith(
        f"module '{room.__name__}' has no attribute '{name}'. {said}"
    )
    assert (caught.value.name, caught.value.obj) == (name, room)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("detach", "Call `ta.stop_gradient(x)`."),
        ("grad", "`tape.backward` gives a bundle; read `grads.grad(w)`."),
        ("exp", "Use `ta.exp`."),
        ("transpose", "Use `ta.permute_dims`."),
        ("norm", "Use `ta.linalg.norm`."),
        ("cpu", 'Call `x.to("cpu")`.'),
        ("t", "Use `ta.matrix_transpose`."),
    ],
)
def test_a_tensor_says_what_there_is_instead(name: str, said: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(ta.asarray([1.0]), name)
    assert (
        str(caught.value) == f"'EagerTensor' object has no attribute '{name}'. {said}"
    )


def test_names_of_others_are_no_members_of_tensors() -> None:
    """Nor does the class ask a function for each attribute: that would cost."""
    x = ta.asarray([1.0])
    for name in ("detach", "exp", "norm"):
        assert name not in dir(x)
        assert not hasattr(x, name)
        assert not hasattr(type(x), name)
        with pytest.raises(AttributeError, match="type object 'EagerTensor' has no"):
            getattr(type(x), name)
    assert {"shape", "at", "astype"} <= set(dir(x))
    assert not hasattr(type(x), "__getattr__")


@pytest.mark.parametrize("thing", [ta, ta.nn, ta.optim, ta.asarray([1.0])])
def test_names_that_nobody_has_are_refused_as_python_does(thing: Any) -> None:
    for name in ("sinn", "_repr_html_", "__cuda_array_interface__"):
        assert not hasattr(thing, name)
        with pytest.raises(AttributeError, match=f"no attribute '{name}'$"):
            getattr(thing, name)


def test_what_is_named_exists_and_what_is_refused_does_not() -> None:
    x = ta.asarray([1.0])
    for theirs in names._OURS:
        assert names.public_name(theirs), theirs
        assert theirs not in ta.__all__
    for ours in names._CLASSES.values():
        assert ours in ta.nn.__all__
    ways = {**names._WAYS, **names._OF_TENSORS}
    for theirs, way in ways.items():
        assert not hasattr(ta, theirs) or not hasattr(x, theirs), theirs
        for path in QUOTED.findall(way):
            found: Any = x if hasattr(x, path) else ta
            for part in path.split("."):
                found = getattr(found, part)


def test_rooms_are_the_public_ones() -> None:
    for room in names._ROOMS:
        assert import_module(f"tenferro_ad.{room}") is getattr(ta, room)
