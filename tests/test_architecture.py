"""The layer table of the package, and the check that every module keeps to it.

Imports point down. All of them count: relative ones, those inside functions, those
under `if TYPE_CHECKING` (a type borrowed from above is still a dependency; name a
protocol below instead), `import_module` with a literal, and `ta.name` on the package.
A module takes from another folder what the folder's `__init__` offers, never a private
module or name. Lifetimes are decided by explicit counts, so reference counts, the
collector and weak registries are refused outright.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = "tenferro_ad"
PACKAGE = Path(__file__).parents[1] / ROOT

# Each may import those before it.
BASE = ("errors", "_ownership", "_report", "_timeline", "_source", "_ledger", "_aval")
LAYERS = {"storage": 1, "ops": 1, "backends": 2, "runtime": 3, "tape": 4, "engine": 5}
CONVENIENCES = {"nn", "optim"}  # the public API only
FACES = {"", "random", "special", "linalg", "fft", "extension", "testing", "unsafe"}
FACES |= {"pytest_plugin", "__main__"}  # anything below; "" is the root `__init__`
PUBLIC = FACES | CONVENIENCES | {"errors"}
KNOWN = PUBLIC | set(BASE) | set(LAYERS)

MAX_LINES = 450
# The error hierarchy is one file by design; the root lists every public name twice.
LONGER = {"errors": 800, "__init__": 800}
REFUSED_NAMES = {"getrefcount", "getweakrefcount", "getweakrefs", "finalize"}
REFUSED_NAMES |= {"WeakSet", "WeakKeyDictionary", "WeakValueDictionary", "WeakMethod"}
MAY_IMPORT = {
    "gc": {"pytest_plugin", "testing"},  # to tell a leak from an uncollected cycle
    "weakref": {"storage._root"},  # the drop callback on an exported array's view
}

Module = tuple[str, ...]  # the path below the package; () is its `__init__`
Import = tuple[int, str, str | None]  # line, absolute module, name taken from it


def misplaced(source: Module, target: Module, name: str | None) -> str | None:
    """Why `source` may not import `name` from `target`, or None when it may."""
    here, there = (path[0] if path else "" for path in (source, target))
    if here == there != "":
        own_init = here in LAYERS and len(target) == 1 < len(source)
        return "its own folder's `__init__`" if own_init else None
    private = (*target[1:], name or "")
    if any(part.startswith("_") and not part.endswith("__") for part in private):
        return "a private module or name of another folder"
    if here in CONVENIENCES:
        return None if there in PUBLIC else "more than the public API"
    if here in FACES:
        return None
    if there in PUBLIC - {"errors"}:
        return "a public face from below"
    if here in BASE:
        earlier = BASE[: BASE.index(here)]
        return None if there in earlier else "what is not an earlier root module"
    if there in LAYERS and LAYERS[there] >= LAYERS[here]:
        return "a folder that is not below"
    return None


def absolute(module: str, level: int, folder: Module) -> str:
    """The full name of a module that is written relative to `folder`."""
    above = (ROOT, *folder)[: len(folder) + 2 - level] if level else ()
    return ".".join((*above, *filter(None, (module,))))


def imports(tree: ast.Module, folder: Module) -> Iterator[Import]:
    """Every import of a module, wherever it stands and however it is spelled."""
    aliases = {ROOT}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node.lineno, alias.name, None
                    if alias.name == ROOT and alias.asname:
                        aliases.add(alias.asname)
            case ast.ImportFrom(module=module, names=names, level=level):
                origin = absolute(module or "", level, folder)
                yield from ((node.lineno, origin, alias.name) for alias in names)
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called),
                args=[ast.Constant(value=str(name)), *_],
            ) if called in {"import_module", "__import__"}:
                bare = name.lstrip(".")
                yield node.lineno, absolute(bare, len(name) - len(bare), folder), None
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                if owner in aliases:
                    yield node.lineno, ROOT, name


def breaches(tree: ast.Module, path: Module, existing: set[Module]) -> Iterator[str]:
    """What one module does against the table, as `line: what`."""
    module = path[:-1] if path[-1] == "__init__" else path
    for line, origin, name in imports(tree, path[:-1]):
        top, *below = origin.split(".")
        if top in MAY_IMPORT and ".".join(module) not in MAY_IMPORT[top]:
            yield f"{line}: imports `{top}`"
        if top == ROOT:
            target: Module = tuple(below)
            if name is not None and (*target, name) in existing:
                target, name = (*target, name), None
            if why := misplaced(module, target, name):
                yield f"{line}: imports {why}: `{'.'.join(target)}` `{name or ''}`"
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=used) | ast.Name(id=used) | ast.alias(name=used):
                if used in REFUSED_NAMES:
                    yield f"{node.lineno}: uses `{used}`"


def violations(package: Path) -> list[str]:
    """Every breach of the table below `package`, as `file:line: what`."""
    files = {
        file.relative_to(package).with_suffix("").parts: file.read_text(
            encoding="utf-8"
        )
        for file in sorted(package.rglob("*.py"))
    }
    existing = {path[:end] for path in files for end in range(len(path) + 1)}
    found = []
    for path, text in files.items():
        where = "/".join(path) + ".py"
        lines = len(text.splitlines())
        limit = LONGER.get(".".join(path), MAX_LINES)
        if lines > limit:
            found.append(f"{where}:{lines}: is longer than {limit} lines")
        if path != ("__init__",) and path[0] not in KNOWN:
            found.append(f"{where}:1: is not in the layer table")
        else:
            found += [
                f"{where}:{what}" for what in breaches(ast.parse(text), path, existing)
            ]
    return found


def test_every_module_keeps_to_the_layer_table() -> None:
    assert {path.name for path in PACKAGE.iterdir()} >= {"__init__.py", *LAYERS}
    assert violations(PACKAGE) == []


WRONG = [
    ("storage/_root.py", "from tenferro_ad.ops import Op", "not below"),
    ("ops/_op.py", "from ..storage import RootResource", "not below"),
    ("storage/_root.py", "def f():\n    from ..engine import EagerTensor", "not below"),
    ("tape/_tape.py", "if TYPE_CHECKING:\n    from .. import engine", "not below"),
    ("tape/_tape.py", "import_module('..engine', __package__)", "not below"),
    ("tape/_tape.py", "import tenferro_ad as ta", "public face"),
    ("tape/_tape.py", "from ..special import erf", "public face"),
    ("tape/_tape.py", "from ..storage._root import RootResource", "private"),
    ("tape/_tape.py", "from ..storage import _root", "private"),
    ("tape/_tape.py", "from . import Tape", "own folder"),
    ("__init__.py", "from .storage._root import RootResource", "private"),
    ("errors.py", "from ._aval import float64", "not an earlier root module"),
    ("_aval.py", "from .storage import RootResource", "not an earlier root module"),
    ("nn/__init__.py", "from ..engine import EagerTensor", "public API"),
    ("optim/_sgd.py", "from tenferro_ad import storage", "public API"),
    ("optim/_sgd.py", "import tenferro_ad as ta\nta._aval.float64", "public API"),
    ("utils.py", "", "not in the layer table"),
    ("ops/_op.py", "\n" * (MAX_LINES + 1), "longer"),
    ("storage/_group.py", "import gc", "imports `gc`"),
    ("storage/_group.py", "from weakref import ref", "imports `weakref`"),
    ("storage/_root.py", "import weakref\nweakref.WeakSet()", "uses `WeakSet`"),
    ("storage/_root.py", "import sys\nsys.getrefcount(x)", "uses `getrefcount`"),
    ("storage/_root.py", "from sys import getrefcount", "uses `getrefcount`"),
]

RIGHT = [
    (
        "storage/_root.py",
        "import weakref\nfrom ..errors import LayoutError\nweakref.ref",
    ),
    ("storage/_group.py", "from ._root import RootResource\nfrom . import _root as r"),
    ("_ledger.py", "from . import errors\nfrom ._ownership import MoveOnly"),
    ("backends/_cpu.py", "from ..ops import Op\nfrom ..storage import Provider"),
    ("engine/_eager.py", "from tenferro_ad import tape\nfrom ..backends import fake"),
    ("nn/_losses.py", "import tenferro_ad as ta\nta.mean\nfrom ..special import erf"),
    ("special.py", "from .engine import apply"),
    ("__init__.py", "from ._aval import float64\nfrom .engine import EagerTensor"),
]


def write_package(folder: Path, file: str, source: str) -> Path:
    """A package of empty modules, apart from the one under test."""
    package = folder / ROOT
    empty = [
        f"{name}.py" for name in (*BASE, "special", "storage/_root", "backends/fake")
    ]
    empty += [f"{layer}/__init__.py" for layer in LAYERS]
    for name in ("__init__.py", *empty, file):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(source if name == file else "", encoding="utf-8")
    return package


@pytest.mark.parametrize(("file", "source", "message"), WRONG)
def test_the_checker_sees_a_breach(
    tmp_path: Path, file: str, source: str, message: str
) -> None:
    found = violations(write_package(tmp_path, file, source))
    assert found
    assert all(what.startswith(file) and message in what for what in found)


@pytest.mark.parametrize(("file", "source"), RIGHT)
def test_the_checker_accepts_what_the_table_allows(
    tmp_path: Path, file: str, source: str
) -> None:
    assert violations(write_package(tmp_path, file, source)) == []
