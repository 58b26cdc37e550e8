"""The array API standard 2025.12: names, signatures, versions, namespace facts.

`array-api-strict` has exactly what the standard names; its namespace and its signatures
are the reference. A parameter must have the standard's name, kind and default; further
parameters with defaults, and defaults where the standard has none, are our additions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import InvalidArgumentError

Parameter = inspect.Parameter
POSITIONAL = (
    Parameter.POSITIONAL_ONLY,
    Parameter.POSITIONAL_OR_KEYWORD,
    Parameter.VAR_POSITIONAL,
)
# What only that library has: switches of its strictness.
OWN = {
    "ArrayAPIStrictFlags",
    "Device",
    "__version__",
    "get_array_api_strict_flags",
    "reset_array_api_strict_flags",
    "set_array_api_strict_flags",
}
TensorOfPeer = type(strict.asarray(0.0))
NAMESPACES: dict[str, tuple[Any, Any]] = {
    "": (strict, ta),
    "linalg.": (strict.linalg, ta.linalg),
    "fft.": (strict.fft, ta.fft),
}


def names() -> Iterator[tuple[str, Any, Any]]:
    """Each of the standard's names with the peer's object and ours (or None)."""
    for prefix, (theirs, ours) in NAMESPACES.items():
        for name in theirs.__all__:
            if name not in OWN:
                yield prefix + name, getattr(theirs, name), getattr(ours, name, None)


def methods() -> Iterator[tuple[str, Any, Any]]:
    """Each public attribute and special method of the standard's array object."""
    for name, theirs in vars(TensorOfPeer).items():
        special = name.startswith("__") and name not in NOT_OF_THE_STANDARD
        if special or not name.startswith("_"):
            yield name, theirs, getattr(ta.EagerTensor, name, None)


# Python's own, NumPy's, and in-place operators: the standard makes those optional, and
# `x += y` computes `x + y` and rebinds the name.
NOT_OF_THE_STANDARD = {
    "__annotations__",
    "__array__",
    "__buffer__",
    "__doc__",
    "__iter__",
    "__module__",
    "__new__",
    "__reduce__",
    "__repr__",
    "__slots__",
    "__str__",
    "__weakref__",
    "__init__",
    "__firstlineno__",
    "__static_attributes__",
    *(
        f"__i{op}__"
        for op in (
            "add and floordiv lshift matmul mod mul or pow rshift sub truediv xor"
        ).split()
    ),
}


def differences(theirs: Callable[..., Any], ours: Callable[..., Any]) -> list[str]:
    """Calls that the standard allows and `ours` refuses, as far as signatures tell."""
    wanted = list(inspect.signature(theirs).parameters.values())
    seen = list(inspect.signature(ours).parameters.values())
    found = []
    places = [p for p in seen if p.kind in POSITIONAL]
    for k, p in enumerate([p for p in wanted if p.kind in POSITIONAL]):
        if k >= len(places):
            found.append(f"`{p}` is missing")
            continue
        q = places[k]
        if (p.name, p.kind) != (q.name, q.kind):
            found.append(f"`{q}` ({q.kind.name}) instead of `{p}` ({p.kind.name})")
        found += default(p, q)
    by_name = {q.name: q for q in seen}
    for p in wanted:
        if p.kind is Parameter.KEYWORD_ONLY:
            q = by_name.get(p.name)
            if q is None or q.kind is not p.kind:
                found.append(f"keyword `{p.name}` is missing")
            else:
                found += default(p, q)
    for q in seen:
        extra = q.name not in {p.name for p in wanted}
        variadic = q.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        if extra and not variadic and q.default is Parameter.empty:
            found.append(f"`{q}` has no default")
    return found


def default(p: Parameter, q: Parameter) -> list[str]:
    """`_Undef` marks what the standard leaves to the implementation: None for us."""
    if p.default is Parameter.empty:
        return []
    wanted = None if type(p.default).__name__ == "Undef" else p.default
    same = q.default is wanted or bool(q.default == wanted)
    return [] if same else [f"`{q}`: the default is not {wanted!r}"]


# ---- names and signatures ------------------------------------------------------------


def test_the_reference_is_that_of_the_standard_we_say() -> None:
    assert strict.__array_api_version__ == ta.__array_api_version__ == "2025.12"


def test_every_name_of_the_standard_exists() -> None:
    found = list(names())
    missing = [name for name, _, ours in found if ours is None and name != "newaxis"]
    assert missing == []
    assert hasattr(ta, "newaxis")
    assert len(found) > 190
    published = set(ta.__all__)
    assert {n for n, _, _ in found if "." not in n} <= published
    for prefix in ("linalg", "fft"):
        assert set(getattr(strict, prefix).__all__) <= set(getattr(ta, prefix).__all__)


def test_constants_and_dtypes_are_the_standard_ones() -> None:
    for name, theirs, ours in names():
        if isinstance(theirs, float):
            assert ours == theirs or (np.isnan(ours) and np.isnan(theirs)), name
        elif type(theirs).__name__ == "DType":
            assert np.dtype(ours) == theirs._np_dtype, name
        elif isinstance(theirs, ModuleType):
            assert isinstance(ours, ModuleType), name
    assert ta.newaxis is None
    assert ta.float32 is np.float32
    assert ta.finfo(ta.float32).eps == strict.finfo(strict.float32).eps


FUNCTIONS = [
    (name, theirs, ours)
    for name, theirs, ours in names()
    if callable(theirs) and not inspect.isclass(theirs)
]


@pytest.mark.parametrize(
    ("name", "theirs", "ours"), FUNCTIONS, ids=[name for name, _, _ in FUNCTIONS]
)
def test_a_function_takes_what_the_standard_says(
    name: str, theirs: Any, ours: Any
) -> None:
    assert ours is not None
    assert differences(theirs, ours) == []
    assert name.split(".")[-1] == ours.__name__ or name == "linalg.diagonal"


def test_the_comparison_of_signatures_sees_a_difference() -> None:
    def reference(x: Any, /, *, axis: int = -1, n: int = 1) -> None: ...

    def renamed(y: Any, /, *, axis: int = -1, n: int = 1) -> None: ...

    def kind(x: Any, *, axis: int = -1, n: int = 1) -> None: ...

    def lacks(x: Any, /, *, axis: int = -1) -> None: ...

    def other(x: Any, /, *, axis: int = 0, n: int = 1) -> None: ...

    def asks(x: Any, /, *, axis: int = -1, n: int = 1, more: int) -> None: ...

    def wider(x: Any, /, *, axis: int = -1, n: int = 1, more: int = 0) -> None: ...

    assert differences(reference, reference) == differences(reference, wider) == []
    for wrong in (renamed, kind, lacks, other, asks):
        assert differences(reference, wrong) != [], wrong.__name__


# ---- the array object ----------------------------------------------------------------


def test_every_attribute_and_method_of_the_array_object_exists() -> None:
    found = list(methods())
    assert [name for name, _, ours in found if ours is None] == []
    assert {"T", "mT", "device", "dtype", "ndim", "shape", "size"} <= {
        name for name, _, _ in found
    }
    assert len(found) > 50
    for name, theirs, ours in found:
        assert isinstance(theirs, property) == isinstance(ours, property), name


def test_named_methods_take_what_the_standard_says() -> None:
    """Operators are called by Python, which names no argument."""
    seen = inspect.signature(ta.EagerTensor.to_device).parameters
    assert [(p.name, p.kind.name) for p in seen.values()][1:] == [
        ("device", "POSITIONAL_ONLY"),
        ("stream", "KEYWORD_ONLY"),
    ]
    seen = inspect.signature(ta.EagerTensor.__dlpack__).parameters
    assert [p.name for p in seen.values() if p.kind is Parameter.KEYWORD_ONLY] == [
        "stream",
        "max_version",
        "dl_device",
        "copy",
    ]
    seen = inspect.signature(ta.EagerTensor.__array_namespace__).parameters
    assert seen["api_version"].kind is Parameter.KEYWORD_ONLY
    assert seen["api_version"].default is None


def test_a_tensor_names_its_namespace_and_refuses_unknown_versions() -> None:
    x = ta.asarray([1.0])
    assert x.__array_namespace__() is ta
    for version in ("2021.12", "2024.12", "2025.12"):
        assert x.__array_namespace__(api_version=version) is ta
    with pytest.raises(InvalidArgumentError, match=r"2020\.01.*2025\.12"):
        x.__array_namespace__(api_version="2020.01")


def test_moving_to_a_device_by_the_standard_name() -> None:
    x = ta.asarray([1.0])
    y = x.to_device(x.device)
    assert y.tolist() == [1.0]
    assert y.device is x.device
    assert x.to_device("cpu").device is x.device
    assert ta.astype(x, ta.float32, device=x.device).dtype == ta.float32
    with pytest.raises(InvalidArgumentError, match="nowhere:0"):
        x.to_device("nowhere:0")
    with pytest.raises(InvalidArgumentError, match="stream"):
        x.to_device(x.device, stream=object())


# ---- namespace facts -----------------------------------------------------------------


def test_the_namespace_tells_its_facts() -> None:
    ours, theirs = ta.__array_namespace_info__(), strict.__array_namespace_info__()
    public = {n for n in dir(theirs) if not n.startswith("_")}
    assert public <= {n for n in dir(ours) if not n.startswith("_")}
    for name in sorted(public):
        assert differences(getattr(theirs, name), getattr(ours, name)) == [], name
    assert set(ours.capabilities()) == set(theirs.capabilities())
    assert ours.capabilities()["boolean indexing"] is True
    assert ours.capabilities()["data-dependent shapes"] is True
    wanted = {k: d._np_dtype for k, d in theirs.default_dtypes().items()}
    assert ours.default_dtypes() == wanted
    for kind in (
        None,
        "bool",
        "signed integer",
        "unsigned integer",
        "integral",
        "real floating",
        "complex floating",
        "numeric",
        ("real floating", "complex floating"),
        (),
    ):
        wanted = {k: d._np_dtype for k, d in theirs.dtypes(kind=kind).items()}
        assert ours.dtypes(kind=kind) == wanted
    with pytest.raises(InvalidArgumentError, match="`decimal`"):
        ours.dtypes(kind="decimal")
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        ours.dtypes(device="nowhere")


def test_values_live_where_the_namespace_says() -> None:
    info = ta.__array_namespace_info__()
    assert info.default_device() in info.devices()
    for x in (ta.asarray([1.0]), ta.zeros(2), ta.arange(3), ta.eye(2)):
        assert x.device is info.default_device()
    for device in info.devices():
        x = ta.ones((2,), device=device)
        assert x.device is device
        assert ta.asarray(np.ones(2), device=device).device is device
        assert x.to_device(device).device is device


def test_the_namespace_keeps_its_word_on_dtypes_and_axes() -> None:
    info = ta.__array_namespace_info__()
    for device in info.devices():
        for dtype in info.dtypes(device=device).values():
            assert ta.zeros(2, dtype=dtype, device=device).dtype == dtype
    defaults = info.default_dtypes()
    assert ta.asarray(1.0).dtype == ta.zeros(1).dtype == defaults["real floating"]
    assert ta.asarray(1j).dtype == defaults["complex floating"]
    assert ta.asarray(1).dtype == ta.arange(3).dtype == defaults["integral"]
    assert ta.argmax(ta.asarray([1.0])).dtype == defaults["indexing"]
    most = info.capabilities()["max dimensions"]
    assert ta.zeros((1,) * most).ndim == most
