"""Check what the documentation says about reaching elements, and run its examples.

    python3 scripts/check-storage-element-access-docs.py [PAGE]

The page must tell the four ways apart, warn against the slow one inside loops, and show
where device memory ends and the host begins. Its examples are run in order. Every call
that reaches elements must say on its `Cost:` line whether it allocates, calls the
provider, waits, works for each element, keeps the rank, and transfers, or name the call
that says so. Every fault is printed with a stable code.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "guides" / "views-and-slicing.md"
STORAGE = ROOT / "tenferro_ad" / "storage"
HEADING = "Element access and performance"
WAYS = {  # what the text about each way must contain
    "Checked random access": ("get(", "O(rank)", "bounds"),
    "Contiguous access": ("prepare_host()", "as_slice()", "typed", "once"),
    "Strided access": ("iter_strided()", "increments", "once"),
    "Operations and launches": ("one resolution", "launch"),
}
OTHERS = {
    "In a loop": ("get", "not", "slice", "strided plan"),
    "Host and device": ("host-visible", "device", '.to("cpu")', "Transfer", "waits"),
}
ASPECTS = {
    "allocation": r"alloca|small objects",
    "provider": r"provider|map\b",
    "waiting": r"\bwait",
    "element": r"element",
    "rank": r"\brank",
    "transfer": r"transfer|\bcop(y|ies)\b",
}
READING = "as_view get numpy prepare_host __getitem__ permute_dims reshape flip"
READING += " broadcast_to"
WRITING = "as_view_mut get_mut write prepare_host_mut"
RANKS = "of erase as_rank"
CALLS = {  # class: its calls that reach elements, or change the static rank
    "Tensor": f"{READING} {WRITING}",
    "TensorView": READING,
    "TensorViewMut": f"{READING} {WRITING}",
    "TypedTensor": f"{READING} {WRITING} {RANKS}",
    "TypedTensorView": f"{READING} {RANKS}",
    "TypedTensorViewMut": f"{READING} {WRITING} {RANKS}",
    "PreparedContiguousRead": "as_slice iter_contiguous",
    "PreparedContiguousWrite": "as_slice_mut iter_contiguous_mut",
    "PreparedStridedRead": "as_strided_array iter_strided",
    "PreparedStridedWrite": "as_strided_array_mut iter_strided_mut",
}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def words(text: str) -> str:
    return " ".join(text.split())


def sections(page: str, level: int) -> dict[str, str]:
    """Text below each heading of one level, up to the next heading of that level."""
    parts = re.split(rf"^{'#' * level} (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def guide(page: str) -> Iterator[str]:
    """What the guide's section leaves out."""
    whole = sections(page, 2).get(HEADING)
    if whole is None:
        yield f"E_SECTION: there is no section `{HEADING}`"
        return
    parts = sections(whole, 3)
    for name, needed in {**WAYS, **OTHERS}.items():
        text = words(parts.get(name, ""))
        if not text:
            yield f"E_PART: `{name}` is not there"
            continue
        for each in needed:
            if each.casefold() not in text.casefold():
                yield f"E_CONTENT: `{name}` does not speak of `{each}`"
    if "```python" not in parts.get("Host and device", "```python"):
        yield "E_CONTENT: `Host and device` shows no example"


def costs() -> dict[str, str]:
    """The `Cost:` text of every method in the storage package, by `Class.method`."""
    found: dict[str, str] = {}
    for file in sorted(STORAGE.glob("*.py")):
        for owner in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(owner, ast.ClassDef):
                for method in owner.body:
                    if isinstance(method, ast.FunctionDef):
                        text = words(ast.get_docstring(method) or "")
                        name = f"{owner.name}.{method.name}"
                        if "Cost:" in text:
                            found[name] = text.partition("Cost:")[2].strip()
                        else:
                            found.setdefault(name, "")
    return found


def cost_lines(found: dict[str, str]) -> Iterator[str]:
    """Calls whose cost is not stated, or not in every respect."""
    for owner, methods in CALLS.items():
        for name in methods.split():
            call = f"{owner}.{name}"
            if call not in found:
                yield f"E_CALL: there is no `{call}`"
                continue
            text = found[call]
            named = re.match(r"as `(\w+\.\w+)`", text)
            if named:
                text = f"{found.get(named[1], '')} {text}"
            for aspect, pattern in ASPECTS.items():
                if not re.search(pattern, text):
                    yield f"E_COST: `{call}` does not state its {aspect}"


def examples(page: str) -> Iterator[str]:
    """Examples of the page that fail, run in order and in one namespace."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in BLOCK.finditer(page):
            line = page.count("\n", 0, block.start(1))
            try:
                exec(compile("\n" * line + block[1], "page", "exec"), names)
            except Exception as error:
                yield f"E_EXAMPLE: line {line + 1}: {type(error).__name__}: {error}"
                return


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", nargs="?", type=Path, default=PAGE)
    chosen = parser.parse_args(arguments)
    page = chosen.page.read_text(encoding="utf-8")
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    found = [*guide(page), *cost_lines(costs()), *examples(page)]
    for fault in found:
        print(fault)
    if not found:
        calls = sum(len(methods.split()) for methods in CALLS.values())
        print(f"The guide holds, and {calls} calls state what they cost.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
