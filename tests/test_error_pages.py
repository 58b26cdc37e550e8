"""Every error leads to its place in the documentation, and the pages leave nothing out.

The pages that are generated are made here without building the site;
`scripts/check-docs-site.py` looks at the site itself.
"""

from __future__ import annotations

import inspect
import pickle
import re
import sys
import traceback
from collections.abc import Iterator
from importlib import import_module, util
from pathlib import Path
from typing import Any

import pytest

import tenferro_ad as ta
from tenferro_ad import errors
from tenferro_ad.testing import GradientCheckError, OperationCheckError

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def pages() -> Any:
    """The extension that writes the pages."""
    place = ROOT / "docs" / "generated_pages.py"
    spec = util.spec_from_file_location("generated_pages", place)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules["generated_pages"] = module
    spec.loader.exec_module(module)
    return module


def classes(kind: type = errors.TenferroError) -> Iterator[type]:
    yield kind
    for sub in kind.__subclasses__():
        if sub.__module__.startswith("tenferro_ad"):
            yield from classes(sub)


PUBLIC = sorted(
    {c for c in classes() if c.__name__[0] != "_"}, key=lambda c: c.__name__
)

ROOMS = ("linalg", "fft", "special", "random", "nn", "optim")
ROOMS += ("extension", "testing", "unsafe")


def test_the_index_has_each_class_once(pages: Any) -> None:
    assert {GradientCheckError, OperationCheckError} <= set(PUBLIC)
    titles = re.findall(r"^### (\w+)$", pages.error_index(), re.MULTILINE)
    assert sorted(titles) == [kind.__name__ for kind in PUBLIC]


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_a_class_links_to_its_heading(kind: Any) -> None:
    assert kind.link == f"errors.html#{kind.__name__.lower()}"
    assert len(f"See {kind.link} in the documentation.") < 72


def test_a_traceback_ends_with_the_link() -> None:
    with pytest.raises(errors.ShapeError) as caught:
        ta.asarray([1.0, 2.0]) + ta.asarray([1.0, 2.0, 3.0])
    lines = traceback.format_exception(caught.value)
    assert lines[-1] == "See errors.html#shapeerror in the documentation.\n"
    assert "errors.html" not in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.__notes__ == caught.value.__notes__
    assert len(again.__notes__) == 1


def test_classes_of_users_keep_the_place_of_their_base() -> None:
    class MineError(errors.ShapeError):
        """Of a user's package."""

    assert MineError.link == errors.ShapeError.link


def entries(text: str) -> set[str]:
    return set(
        re.findall(
            r"^\.\. (?:auto\w+|py:\w+):: (\w+)(?:\(\.\.\.\))?$", text, re.MULTILINE
        )
    )


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_every_public_name_has_an_entry_in_the_reference(room: str, pages: Any) -> None:
    made = pages.api_pages()
    module = import_module(f"tenferro_ad.{room}" if room else "tenferro_ad")
    mine = [made[room]] if room else [t for n, t in made.items() if n not in ROOMS]
    listed = set().union(*map(entries, mine))
    names = {n for n in module.__all__ if not inspect.ismodule(getattr(module, n))}
    assert names <= listed
    for other in ROOMS:
        assert f"\n{other}\n" in made["index"]


def test_every_public_member_is_listed_with_its_class(pages: Any) -> None:
    text = "".join(pages.api_pages().values())
    for name in ta.__all__:
        kind = getattr(ta, name)
        if not inspect.isclass(kind) or not kind.__module__.startswith("tenferro_ad"):
            continue
        found = re.search(rf"autoclass:: {name}\n(?:   :members: (.*)\n)?", text)
        assert found is not None, name
        listed = set((found[1] or "").split(", "))
        for member in dir(kind):
            owners = [b for b in kind.__mro__ if member in vars(b)]
            if member[0] == "_" or not hasattr(kind, member):
                continue
            if owners[0].__module__.startswith("tenferro_ad"):
                assert member in listed, (name, member)


def test_classes_without_a_shown_constructor_are_public(pages: Any) -> None:
    known = {*ta.__all__, *ta.extension.__all__, *ta.testing.__all__}
    assert not pages.MADE_BY_CALLS - known


def test_sections_are_those_that_docstrings_have(pages: Any) -> None:
    begun = re.compile(r"^ *([A-Z][A-Za-z]+)(?: \([^)]*\))?:\n +\S", re.MULTILINE)
    for file in (ROOT / "tenferro_ad").rglob("*.py"):
        for found in begun.finditer(file.read_text(encoding="utf-8")):
            assert pages._SECTION.fullmatch(f"{found[1]}:"), (file, found[1])


def shown(pages: Any, what: str, value: Any, text: str) -> list[str]:
    """A docstring as the reference prints it."""
    lines = text.split("\n")
    pages.readable(None, what, "name", value, None, lines)
    return lines


def test_docstrings_are_read_as_they_are_meant(pages: Any) -> None:
    said = shown(pages, "property", None, "Byte strides. Cost: constant.")
    assert said == ["..", "", "Byte strides.", "", "**Cost:** constant."]
    said = shown(pages, "function", None, "Sum.\n\nCost: a pass\n    and more.")
    assert said == ["Sum.", "", "**Cost:** a pass", "and more."]
    said = shown(pages, "class", None, "Two.\n\nAttributes:\n    a, b: numbers.")
    assert said[-2:] == ["    a: see ``b``.", "    b: numbers."]
    said = shown(pages, "module", None, "* one `x`\n* a*b|c")
    assert said == ["* one ``x``", "* a\\*b\\|c"]
    said = shown(pages, "function", None, "Says.\n\n    a = b * c\n\nMore.")
    assert said == ["Says.", "", "::", "", "    a = b * c", "", "More."]
    assert shown(pages, "attribute", None, "Alias for field number 0") == ["..", ""]
