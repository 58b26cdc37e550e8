"""G5: calls that reveal a pointer. An inventory finds them all; each has its duties."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tenferro_ad as ta
from tenferro_ad.backends import Launch
from tests.scripts import ROOT, script

PACKAGE = Path(ta.__file__).parent
PAGE = ROOT / "docs" / "unsafe-interop.md"

ATTRIBUTES = {
    *("ptr", "ctypes", "addressof", "from_address", "from_buffer", "_internal"),
    *("__array_interface__", "__cuda_array_interface__", "data_ptr", "int_ptr"),
}
CALLS = {"__dlpack__", "np.from_dlpack", "ffi.new", "ffi.callback"}


def is_address(node: ast.AST) -> bool:
    """Whether an expression shows where memory is."""
    if isinstance(node, ast.Attribute):
        return node.attr in ATTRIBUTES
    if isinstance(node, ast.Name):
        return node.id == "ctypes"
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        return name in CALLS or name.rpartition(".")[2] == "__dlpack__"
    return False


def places(tree: ast.Module) -> Iterator[str]:
    """The functions and classes of a module that have one."""
    for item in tree.body:
        if not isinstance(item, ast.FunctionDef | ast.ClassDef):
            continue
        for node in ast.walk(item):
            if is_address(node):
                yield item.name
                break


def inventory(package: Path) -> set[str]:
    found = set()
    for file in sorted(package.rglob("*.py")):
        where = file.relative_to(package).as_posix()
        tree = ast.parse(file.read_text(encoding="utf-8"))
        found |= {f"{where} {name}" for name in places(tree)}
    return found


def listed() -> set[str]:
    """The places of the page's second table."""
    text = PAGE.read_text(encoding="utf-8").split("## Inside")[1]
    rows = re.findall(r"^\| `([\w/]+\.py)` `([\w.]+)` \|", text, re.MULTILINE)
    return {f"{file} {name}" for file, name in rows}


@pytest.mark.clause("g5-interop-duties")
def test_the_page_lists_every_place_that_shows_an_address() -> None:
    assert inventory(PACKAGE) == listed()
    assert len(listed()) > 8


def test_the_inventory_sees_a_place_that_is_not_listed(tmp_path: Path) -> None:
    """Each way of showing an address is one that the inventory knows."""
    for number, body in enumerate(
        (
            "x.data.ptr",
            "x.__array_interface__['data'][0]",
            "x.ctypes.data",
            "ctypes.addressof(x)",
            "x.__dlpack__()",
            "np.from_dlpack(x)",
            "(ctypes.c_char * 4).from_address(x)",
            "x.data_ptr()",
        )
    ):
        file = tmp_path / f"leak{number}.py"
        file.write_text(f"def leak(x):\n    return {body}\n", encoding="utf-8")
        assert f"leak{number}.py leak" in inventory(tmp_path)
    assert inventory(tmp_path / "nothing") == set()


DUTIES = ("keep", "binding alive", "synchronisation", "after retirement")


@pytest.mark.clause("g5-interop-duties")
@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("ta.unsafe.import_array", ta.unsafe.__doc__),
        ("ta.unsafe.from_dlpack", ta.unsafe.__doc__),
        ("x.__dlpack__(copy=False)", ta.EagerTensor.__dlpack__.__doc__),
        ("Endpoint.enqueue(launch)", Launch.__doc__),
    ],
)
def test_each_call_documents_its_duties(call: str, text: str) -> None:
    said = " ".join(text.split()).casefold()
    for duty in DUTIES:
        assert duty in said, duty
    rows = PAGE.read_text(encoding="utf-8").split("## Calls")[1].split("## Inside")[0]
    (row,) = [line for line in rows.splitlines() if line.startswith(f"| `{call}` |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == 5
    assert all(cells)


@pytest.mark.clause("g5-interop-duties")
def test_every_public_unsafe_call_is_in_the_table() -> None:
    rows = PAGE.read_text(encoding="utf-8").split("## Calls")[1].split("## Inside")[0]
    for name in ta.unsafe.__all__:
        assert f"| `ta.unsafe.{name}` |" in rows
        assert "duties" in (getattr(ta.unsafe, name).__doc__ or "")


NAMED = re.compile(r"ptr|pointer|address|raw_handle", re.IGNORECASE)


@pytest.mark.clause("g5-interop-duties")
def test_no_public_call_gives_or_takes_an_address() -> None:
    calls = script("check-public-error-docs").published()
    assert len(calls) > 500
    for name, call in calls.items():
        assert not NAMED.search(name), name
        assert not any(map(NAMED.search, inspect.signature(call).parameters)), name
