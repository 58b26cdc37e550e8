"""A Sphinx extension: the pages that follow from the package itself.

The error index has an anchor for each error class; the API reference has an entry for
each public name, sorted into pages here. A public name that no page lists stands on the
page of functions, so none can be forgotten.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import tenferro_ad as ta
from tenferro_ad import errors
from tenferro_ad._ownership import MoveOnly

ERRORS = """# Error index

Every error derives from `TenferroError` and from a builtin that a caller would already
catch. Its text says what was asked and found, and what to do; the same facts are
fields, given below. A traceback ends with the place of its class on this page, which is
also `error.link`.

The line between errors and outcomes: an error means that nothing happened. Once work
may have run, the answer is one of `Completed`, `RetiredFailed` and
`CompletionUnproven`.
"""
FAMILY = re.compile(r"^# ---- (.+)$|^class (\w+)\(", re.MULTILINE)


def error_index() -> str:
    """The page: families and classes in the order in which they are defined."""
    parts = [ERRORS]
    family = ""
    for match in FAMILY.finditer(inspect.getsource(errors)):
        if match[1]:
            family = match[1]
            continue
        kind = getattr(errors, match[2])
        if _is_listed(kind):
            parts += [_family(family)] if family else []
            parts.append(_entry(kind))
            family = ""
    parts.append(_family("checks in tests: what `ta.testing` raises"))
    parts += [
        _entry(kind)
        for kind in map(ta.testing.__dict__.get, ta.testing.__all__)
        if inspect.isclass(kind) and _is_listed(kind)
    ]
    return "".join(parts)


def _is_listed(kind: type) -> bool:
    return issubclass(kind, errors.TenferroError) and not kind.__name__.startswith("_")


def _family(text: str) -> str:
    title, _, rest = text.partition(": ")
    said = f"{rest[:1].upper()}{rest[1:]}.\n" if rest else ""
    return f"\n## {title[:1].upper()}{title[1:]}\n\n{said}"


def _entry(kind: type[errors.TenferroError]) -> str:
    name = kind.__name__
    said, _, attributes = (inspect.getdoc(kind) or "").partition("Attributes:")
    told = {
        found[1]: found[2]
        for found in re.finditer(
            r"^ {4}(\w+): (.+(?:\n {8}.+)*)", attributes, re.MULTILINE
        )
    }
    for field in inspect.get_annotations(kind):
        if not field.startswith("_") and field in kind._names:
            told.setdefault(field, "")
    lines = [f"\n### {name}\n", f"*{', '.join(_bases(kind))}*\n", said.strip() + "\n"]
    found, fix = _template(kind, "_found"), _template(kind, "_fix")
    if found:
        lines.append(f"It says: {found}.\n")
    if fix:
        lines.append(f"What to do: {fix}.\n")
    if told:
        lines.append("Fields:\n")
    lines += [
        f"- `{field}`" + (f": {' '.join(text.split())}" if text else "")
        for field, text in told.items()
    ]
    return "\n".join(lines) + "\n"


def _bases(kind: type) -> list[str]:
    """Bases that a caller can name; a private one stands for its own."""
    found: list[str] = []
    for base in kind.__bases__:
        is_private = base.__name__.startswith("_")
        found += _bases(base) if is_private else [f"`{base.__name__}`"]
    return found


def _template(kind: type, name: str) -> str:
    """A text with its fields as words, if the class has one of its own."""
    text: str = "" if kind is errors.TenferroError else vars(kind).get(name, "")
    return re.sub(r"`?\{(\w+)\}`?", r"*\1*", text)


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
        "TypedTensorView TypedTensorViewMut DynRank Rank0 Rank1 Rank2 Rank3 Rank4 "
        "Rank5 Rank6 Rank7 Rank8",
    ),
}
FAMILIES = {  # of functions: what they are about, and the endings of their modules
    "Creation": "creation",
    "Element by element": "elementwise",
    "Reductions, running sums, quantiles": "reductions cumulative quantiles",
    "Shapes and axes": "movement",
    "Joining, splitting, repeating": "joining",
    "Indexing and scattering": "indexing scatter",
    "Products": "products einsum",
    "Sorting, searching, sets": "sorting",
    "Networks": "convolution pooling nn",
    "Dtypes and parts of numbers": "dtypes reinterpret",
}
FACES = ("linalg", "fft", "special", "random", "nn", "optim")
FACES += ("extension", "testing", "unsafe")
ACCESS = "scalar_pairs PreparedContiguousRead PreparedContiguousWrite "
ACCESS += "PreparedStridedRead PreparedStridedWrite PreparedDeviceRead "
ACCESS += "PreparedDeviceWrite"
CONSTANTS = """Data types are NumPy's own, under their standard names, so `ta.float64 is
np.float64`; constants are Python numbers."""


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
    pages["access"] = _page("Prepared access", "tenferro_ad.storage", ACCESS.split())
    pages["functions"] = _functions(sorted(rest, key=str.lower))
    pages["constants"] = _constants()
    for face in FACES:
        module = f"tenferro_ad.{face}"
        names = import_module(module).__all__
        pages[face] = _page(f"`ta.{face}`", module, names, about=True)
    pages["index"] = API.format(pages="\n".join(pages))
    return pages


def _functions(names: Sequence[str]) -> str:
    """The page of functions, by family: the module of the engine that defines them."""
    families: dict[str, list[str]] = {title: [] for title in (*FAMILIES, "Others")}
    homes = {home: title for title, homes in FAMILIES.items() for home in homes.split()}
    for name in names:
        home = getattr(ta, name).__module__.rpartition("_fn_")[2]
        families[homes.get(home, "Others")].append(name)
    parts = ["# Functions\n"]
    for title, found in families.items():
        if found:
            page = _page(title, "tenferro_ad", found)
            parts.append(page.replace(f"# {title}", f"## {title}", 1))
    return "\n".join(parts)


def _has_entry(value: Any) -> bool:
    """A function or class of the package, and not a dtype or a number."""
    module = getattr(value, "__module__", None) or ""
    return callable(value) and module.startswith("tenferro_ad")


def _page(title: str, module: str, names: Sequence[str], *, about: bool = False) -> str:
    """One page; `about` puts the docstring of the module before its names."""
    lines = [f"# {title}", "", "```{eval-rst}"]
    if about:
        lines += [f".. automodule:: {module}", ""]
    lines += [f".. currentmodule:: {module}", ""]
    for name in names:
        value = getattr(import_module(module), name)
        if about and value is getattr(ta, name, None):
            same = f"   The same as :py:obj:`ta.{name} <tenferro_ad.{name}>`."
            lines += [f".. py:function:: {name}(...)", "", same, ""]
        elif inspect.isclass(value):
            members = ", ".join(public_members(value))
            lines += [f".. autoclass:: {name}"]
            if members:
                lines += [f"   :members: {members}", "   :undoc-members:"]
            lines.append("")
        elif callable(value):
            lines += [f".. autofunction:: {name}", ""]
    return "\n".join([*lines, "```", ""])


def public_members(kind: type) -> list[str]:
    """Members that the package defines, those of bases included, in their order."""
    found: dict[str, None] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("tenferro_ad"):
            # Fields first, as they are declared; slots have no order of their own.
            found |= dict.fromkeys((*inspect.get_annotations(base), *vars(base)))
    return [
        name
        for name in found
        if not name.startswith("_")
        and hasattr(kind, name)
        and not (issubclass(kind, errors.TenferroError) and name in _OF_EVERY_ERROR)
    ]


# Classes whose objects come out of calls; nobody writes their constructor.
MADE_BY_CALLS = frozenset(
    "EagerTensor ValueGuard Gradients Retained Plan LedgerScope TracedProgram "
    "SymbolicProgram Compiled Fused Call Operation Completed RetiredFailed "
    "CompletionUnproven OutputMetadata GradientCheckError OperationCheckError".split()
)
_OF_EVERY_ERROR = frozenset(errors.TenferroError._names) | {"link"}


def _constants() -> str:
    """Public names that are neither functions nor classes of the package."""
    lines = ["# Data types and constants", "", CONSTANTS, "", "```{eval-rst}"]
    lines += [".. currentmodule:: tenferro_ad", ""]
    for name in ta.__all__:
        value = getattr(ta, name)
        if inspect.ismodule(value) or _has_entry(value):
            continue
        text = f"NumPy's ``{name}``." if isinstance(value, type) else f"``{value!r}``"
        lines += [f".. py:data:: {name}", "", f"   {text}", ""]
    return "\n".join([*lines, "```", ""])


def readable(
    app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings are plain text with `names`; make them reStructuredText.

    Bars and stars are text, names are literals, an indented block after a paragraph
    (outside the sections) is code, and the cost of a call is a paragraph of its own.
    """
    made: list[str] = []
    in_section = in_code = in_cost = False
    if re.fullmatch(r"Alias for field number \d+", "".join(lines)):
        lines.clear()  # what a named tuple says of its fields
    if what in ("property", "attribute", "data"):
        made += ["..", ""]  # or the first line is taken for "type: description"
    for line in chain.from_iterable(map(_cost_apart, _fields_apart(lines))):
        line = re.sub(r"^Raises \([a-z ]+\):$", "Raises:", line)
        in_cost = line.startswith("Cost: ") or (in_cost and bool(line))
        line = line.lstrip() if in_cost else line
        indented = line.startswith("    ")
        if line and not indented:
            in_section = bool(_SECTION.fullmatch(line))
            in_code = False
        elif indented and not in_section and not in_code and made and not made[-1]:
            made += ["::", ""]
            in_code = True
        line = line if in_code else _as_rst(line)
        made.append(re.sub(r"^Cost: ", "**Cost:** ", line))
    lines[:] = made


def _fields_apart(lines: list[str]) -> Iterator[str]:
    """Fields that share a text have an entry each; the last one has the text."""
    inside = False
    for line in lines:
        inside = line == "Attributes:" or (inside and line.startswith((" ", "\t")))
        found = re.match(r"^    (\w+(?:, \w+)+): ", line) if inside else None
        if found:
            *names, last = found[1].split(", ")
            yield from (f"    {name}: see `{last}`." for name in names)
            line = line.replace(found[1], last, 1)
        yield line


def _cost_apart(line: str) -> list[str]:
    before, found, cost = line.partition(" Cost: ")
    is_sentence = before.rstrip("`)").endswith(".") and not before.startswith(" ")
    return [before, "", f"Cost: {cost}"] if found and is_sentence else [line]


def constructor(
    app: Any, what: str, name: str, value: Any, options: Any, given: str, returns: str
) -> tuple[str, str] | None:
    """Classes that nobody calls show no signature, and records only their names."""
    if what != "class":
        return None
    if issubclass(value, MoveOnly) or value.__name__ in MADE_BY_CALLS:
        return "", returns
    if is_dataclass(value):
        found = inspect.signature(value).parameters.values()
        names = [p.name if p.default is p.empty else f"{p.name}=..." for p in found]
        return f"({', '.join(names)})", returns
    return None


_SECTION = re.compile(r"(Args|Attributes|Cost|Raises|Returns|Source)( \([^)]*\))?:.*")


def _as_rst(line: str) -> str:
    parts = re.split(r"(``.+?``|`[^`]+`)", line)
    for k, part in enumerate(parts):
        if k % 2:
            parts[k] = part if part.startswith("``") else f"`{part}`"
        else:
            bullet = "* " if not k and part.startswith("* ") else ""
            rest = part.removeprefix(bullet)
            parts[k] = bullet + re.sub(r"([*|])", r"\\\1", rest)
            if k and part[:1].isalnum():  # `Name`s: a literal ends at a boundary
                parts[k] = "\\ " + parts[k]
    return "".join(parts)


def one_place(app: Any, doctree: Any) -> None:
    """A source leads back to one room, so names of others do not lead to it."""
    from sphinx import addnodes  # the rest of this module works without Sphinx

    of_root = {
        getattr(getattr(ta, name), "__module__", "")
        for name in ta.__all__
        if _has_entry(getattr(ta, name))
    }
    for signature in doctree.findall(addnodes.desc_signature):
        room, name = signature.get("module") or "", signature.get("fullname") or ""
        if room.removeprefix("tenferro_ad.") in FACES:
            value = getattr(import_module(room), name.partition(".")[0])
            if getattr(value, "__module__", "") in of_root:
                signature["module"] = ""


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
    app.connect("autodoc-process-signature", constructor)
    # Before the extension that shows sources.
    app.connect("doctree-read", one_place, priority=400)
    return {"parallel_read_safe": True}
