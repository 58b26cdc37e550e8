"""The scripts of the repository, as modules that tests may call."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"

if str(SCRIPTS) not in sys.path:  # where scripts find the package that some share
    sys.path.append(str(SCRIPTS))


def script(name: str, folder: Path = SCRIPTS) -> Any:
    """A script by its name without `.py`; importing it runs nothing."""
    spec = importlib.util.spec_from_file_location(
        name.replace("-", "_"), folder / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module
