"""V2: what the layers of proof are, and what they may not do to each other.

The ledger itself is tested in tests/registry.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import tenferro_ad.storage as storage_package
from tenferro_ad.errors import NotConstructibleError
from tenferro_ad.storage import AccessTarget, prepare_write, validations

TESTS = Path(__file__).parents[1]
SOURCES = Path(storage_package.__file__).parent
# What a finished descriptor, claim or plan consists of.
PARTS = {"span", "layout", "placement", "byte_range", "extents", "strides", "dtype"}
HOOKS = ("corrupt", "damage", "tamper", "quarantine", "revalidate")


def trees(*folders: Path) -> dict[str, ast.Module]:
    return {
        file.name: ast.parse(file.read_text(encoding="utf-8"))
        for folder in folders
        for file in sorted(folder.glob("*.py"))
    }


@pytest.mark.clause("v2-proof-layers")
def test_write_safety_rests_on_borrows_and_private_constructors(kernel: Any) -> None:
    for kind in (storage_package.StorageMut, storage_package.OwnedSpanClaim):
        with pytest.raises(NotConstructibleError):
            kind()
    # A lock orders retirements; it takes no part in who may touch which bytes.
    locking = {
        name
        for name, tree in trees(SOURCES).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "threading" in ast.unparse(node)
    }
    assert locking == {"_retirement.py"}
    owner = kernel.owner((4,))
    write = owner.as_view_mut().checked_write()
    before = validations.snapshot()
    prepare_write(write, AccessTarget.Host).close()
    owner.prepare_host().close()
    assert validations.snapshot() == before  # mapping proves nothing again


@pytest.mark.clause("v2-proof-layers")
def test_no_test_and_no_module_damages_what_is_finished() -> None:
    for name, tree in trees(SOURCES).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                assert not any(hook in node.name.lower() for hook in HOOKS), name
    for name, tree in trees(TESTS / "contract", TESTS / "storage").items():
        for node in ast.walk(tree):
            targets = []
            match node:
                case ast.Assign(targets=several):
                    targets = several
                case ast.AugAssign(target=one) | ast.AnnAssign(target=one):
                    targets = [one]
            written = {t.attr for t in targets if isinstance(t, ast.Attribute)}
            of_self = {
                t.attr
                for t in targets
                if isinstance(t, ast.Attribute)
                and isinstance(t.value, ast.Name)
                and t.value.id == "self"
            }
            assert not (written - of_self) & PARTS, (name, ast.unparse(node))
