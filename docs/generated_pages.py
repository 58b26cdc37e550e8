"""A Sphinx extension: the pages that follow from the package itself.

The error index has an anchor for each error class; the API reference has an entry for
each public name, sorted into pages here. A public name that no page lists stands on the
page of functions, so none can be forgotten.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import tenferro_ad as ta
from tenferro_ad import errors

ERRORS = """# Error index

Every error derives from `TenferroError` and from a builtin that a caller would already
catch. Its text says what was asked and found, and what to do; the same facts are
fields: `operation`, `argument`, `found`, `fix`, and those named below. The line between
errors and outcomes: an error means that nothing happened; once work may have run, the
answer is one of `Completed`, `RetiredFailed` and `CompletionUnproven`.
"""


def error_index() -> str:
    """The page, in the order in which the classes are defined."""
    kinds = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.TenferroError) and not kind.__name__.startswith("_")
    ]
    kinds.sort(key=lambda kind: inspect.getsourcelines(kind)[1])
    return ERRORS + "".join(map(_entry, kinds))


def _entry(kind: type[BaseException]) -> str:
    name = kind.__name__
    bases = ", ".join(f"`{b.__name__}`" for b in kind.__bases__ if b is not object)
    own = [
        field
        for base in kind.__mro__
        for field in vars(base).get("__annotations__", {})
        if not field.startswith("_") and issubclass(base, errors.TenferroError)
    ]
    fields = ", ".join(f"`{f}`" for f in dict.fromkeys(own))
    lines = [
        f"\n({name.lower()})=\n",
        f"## {name}\n",
        f"*{bases}*\n",
        f"{inspect.getdoc(kind) or ''}\n",
    ]
    if fields:
        lines.append(f"Fields: {fields}.\n")
    fix = getattr(kind, "_fix", "")
    if fix:
        lines.append(f"What to do: {fix}.\n")
    return "\n".join(lines)


API = """# API reference

From the docstrings. Every public callable says what it raises and, under *Cost*,
whether it allocates, copies, calls the provider or waits.

```{{toctree}}
:maxdepth: 1

{pages}
```
"""
PAGES: dict[str, tuple[str, str]] = {
    "tensors": (
        "Tensors and devices",
        "EagerTensor ValueGuard asarray variable from_dlpack stop_gradient Fused fused "
        "exclusive update devices default_device",
    ),
    "recording": (
        "Recording and transforms",
        "Tape Gradients Retained grad value_and_grad vjp jvp hvp linearize "
        "linear_transpose jacfwd jacrev hessian vmap checkpoint plan Plan custom_vjp "
        "custom_jvp scan cond switch while_loop fori_loop",
    ),
    "ledgers": ("Ledgers", "ledger LedgerScope forbid AllocationReason CopyReason"),
    "compiling": (
        "Tracing, compiling and submitting",
        "trace Spec TracedProgram SymbolicProgram compile Compiled Runtime "
        "ExecutionInputs ExecutionHandle ExecutionBundle OutputMetadata "
        "ScopedReadInputs ScopedExecutionBundle Completed RetiredFailed "
        "CompletionUnproven BorrowedBindings submit_borrowed",
    ),
    "storage": (
        "Owners, views and groups",
        "Tensor TensorView TensorViewMut AllocationGroup DescriptorSlot TypedTensor "
        "TypedTensorView TypedTensorViewMut",
    ),
}
FACES = ("linalg", "fft", "special", "random", "nn", "optim")
FACES += ("extension", "testing", "unsafe")


def api_pages() -> dict[str, str]:
    """Text of each page of the reference, by name."""
    sorted_in = {name for _, names in PAGES.values() for name in names.split()}
    rest = [
        name
        for name in ta.__all__
        if name not in sorted_in and _has_entry(getattr(ta, name))
    ]
    pages = {
        page: _page(title, "tenferro_ad", names.split())
        for page, (title, names) in PAGES.items()
    }
    pages["functions"] = _page("Functions", "tenferro_ad", sorted(rest, key=str.lower))
    for face in FACES:
        module = getattr(ta, face)
        pages[face] = _page(f"`ta.{face}`", f"tenferro_ad.{face}", module.__all__)
    pages["index"] = API.format(pages="\n".join(pages))
    return pages


def _has_entry(value: Any) -> bool:
    """A function or class of the package (not a dtype or a rank marker)."""
    module = getattr(value, "__module__", None) or ""
    return (
        callable(value)
        and module.startswith("tenferro_ad")
        and not (
            inspect.isclass(value) and value.__name__.startswith(("Rank", "DynRank"))
        )
    )


def _page(title: str, module: str, names: Sequence[str]) -> str:
    lines = [f"# {title}", "", "```{eval-rst}", f".. currentmodule:: {module}", ""]
    for name in names:
        value = getattr(import_module(module), name)
        if inspect.isclass(value):
            lines += [f".. autoclass:: {name}", "   :members:", ""]
        elif callable(value):
            lines += [f".. autofunction:: {name}", ""]
    return "\n".join([*lines, "```", ""])


def readable(
    app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings are plain text with `names`; make them reStructuredText.

    Bars and stars are text, names are literals, and an indented block after a paragraph
    (outside the sections) is code.
    """
    made: list[str] = []
    in_section = False
    in_code = False
    for line in lines:
        line = re.sub(r"^Raises \([a-z ]+\):$", "Raises:", line)
        indented = line.startswith("    ")
        if line and not indented:
            in_section = bool(_SECTION.fullmatch(line))
            in_code = False
        elif indented and not in_section and not in_code and made and not made[-1]:
            made += ["::", ""]
            in_code = True
        made.append(line if in_code else _as_rst(line))
    lines[:] = made


_SECTION = re.compile(r"[A-Z][A-Za-z ]*(\([^)]*\))?:.*")


def _as_rst(line: str) -> str:
    parts = re.split(r"(``.+?``|`[^`]+`)", line)
    for k, part in enumerate(parts):
        if k % 2:
            parts[k] = part if part.startswith("``") else f"`{part}`"
        else:
            parts[k] = re.sub(r"([*|])", r"\\\1", part)
            if k and part[:1].isalnum():  # `Name`s: a literal ends at a boundary
                parts[k] = "\\ " + parts[k]
    return "".join(parts)


def write(app: Any) -> None:
    """Write the pages that changed, so that a rebuild stays quick."""
    root = Path(app.srcdir)
    (root / "api").mkdir(exist_ok=True)
    pages = {"errors.md": error_index()}
    pages |= {f"api/{name}.md": text for name, text in api_pages().items()}
    for name, text in pages.items():
        page = root / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Enter the extension."""
    app.connect("builder-inited", write)
    app.setup_extension("sphinx.ext.autodoc")
    # Before the extension that reads the sections.
    app.connect("autodoc-process-docstring", readable, priority=400)
    return {"parallel_read_safe": True}
