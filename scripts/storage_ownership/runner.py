"""Running: every active argv once, no deferred one, and an exact log of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .checks import candidate
from .diagnostics import Diagnostic, Faults, fault, require
from .manifest import Command
from .receipt import execution, failed, receipt


def run(root: Path, name: str, revision: str | None, out: Path) -> dict[str, Any]:
    """Execute what is active and write the receipt, also if commands fail."""
    chosen = candidate(root, name, revision)
    _prepare(out, root, chosen.repository.tracked())
    ended: dict[Command, int] = {}
    found: list[Diagnostic] = []
    executions = []
    for row in chosen.manifest.active:
        if row.command not in ended:
            try:
                ended[row.command] = _execute(root, row.command)
            except OSError as error:
                found.append(_not_started(row.command, error))
                continue
        executions.append(execution(row, ended[row.command]))
        found += failed(row.id, ended[row.command])
    log = receipt(chosen.repository.candidate, chosen.base, executions)
    out.write_text(json.dumps(log, indent=2) + "\n", encoding="utf-8")
    require(found)
    return {"said": f"{len(ended)} commands ended well; see {out}."}


def _prepare(out: Path, root: Path, tracked: set[str]) -> None:
    """Make way for a new receipt, so that an old one never stands for this run."""
    there = out.resolve()
    inside = there.is_relative_to(root.resolve())
    if inside and str(there.relative_to(root.resolve())) in tracked:
        message = f"`{out}` is tracked; a receipt is not part of the candidate."
        raise Faults([fault("E_RECEIPT_OUT", message, receipt=str(out))])
    try:
        out.unlink(missing_ok=True)
        out.write_bytes(b"")
        out.unlink()
    except OSError as error:
        message = f"No receipt can be written at `{out}`: {error}."
        raise Faults([fault("E_RECEIPT_OUT", message, receipt=str(out))]) from None


def _execute(root: Path, command: Command) -> int:
    """The exit status of one argv; what it prints goes to standard error."""
    sys.stderr.flush()
    return subprocess.run(
        command.argv,
        cwd=root / command.cwd,
        stdin=subprocess.DEVNULL,
        stdout=2,
        check=False,
    ).returncode


def _not_started(command: Command, error: OSError) -> Diagnostic:
    message = f"`{command.argv[0]}` of `{command.id}` cannot be started: {error}."
    told = {"command_id": command.id, "executable": command.argv[0]}
    return fault("E_COMMAND_START", message, **told)
