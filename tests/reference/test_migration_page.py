"""The page for those who come from elsewhere: what it shows of other systems runs, and
gives what ours gives."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "migration.md"
BLOCK = re.compile(r"^```(py|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.reference
def test_the_same_step_gives_the_same_in_every_system() -> None:
    theirs: dict[str, Any] = {}
    ours: dict[str, Any] = {}
    text = PAGE.read_text(encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        for block in BLOCK.finditer(text):
            line = text.count("\n", 0, block.start(2))
            source = compile("\n" * line + block[2], str(PAGE), "exec")
            exec(source, theirs if block[1] == "py" else ours)
    for system in ("torch", "jax", "autograd"):
        assert np.allclose(theirs[f"{system}_result"], ours["result"], rtol=1e-12)
    assert np.allclose(theirs["jax_hessian"], ours["hessian"], rtol=1e-12)
