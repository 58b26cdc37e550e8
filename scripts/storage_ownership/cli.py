"""The command lines of both tools: the handshake, options, and forms of output.

Standard output holds one JSON object or nothing; sentences go to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from . import manifest
from .diagnostics import Faults, envelope, fault, sentences

MANIFEST = "scripts/storage-ownership-contracts.toml"
PROBE = "--contract-schema"
CHECKER = "check-storage-ownership-contracts"
RUNNER = "run-storage-ownership-contracts"
OPTIONS = {
    CHECKER: [
        "--root",
        "--manifest",
        "--base-commit",
        "--receipt",
        "--summary-json",
        "--diagnostics-json",
    ],
    RUNNER: [
        "--root",
        "--manifest",
        "--base-commit",
        "--receipt-out",
        "--diagnostics-json",
    ],
}
ROLES = {CHECKER: "checker", RUNNER: "runner"}
FORMS: dict[str, dict[str, Any]] = {
    "--root": {"type": Path, "help": "the repository (this script's own)"},
    "--manifest": {"default": MANIFEST, "help": "the manifest, relative to the root"},
    "--base-commit": {"help": "a revision before HEAD to compare the manifest with"},
    "--receipt": {"type": Path, "help": "a receipt that the runner wrote for HEAD"},
    "--receipt-out": {"type": Path, "required": True, "help": "where to write it"},
    "--summary-json": {"action": "store_true", "help": "print what was derived"},
    "--diagnostics-json": {"action": "store_true", "help": "print faults as JSON"},
}


def handshake(tool: str) -> dict[str, Any]:
    """What a tool says about itself to the probe."""
    return {
        "schema": "tenferro.storage-ownership-cli-contract.v1",
        "tool": tool,
        "role": ROLES[tool],
        "manifest_schema": manifest.SCHEMA,
        "probe": PROBE,
        "options": OPTIONS[tool],
    }


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        told = f"{message[:1].upper()}{message[1:]}.\n{self.format_usage()}"
        raise Faults([fault("E_USAGE", told, tool=self.prog)])


def _parse(tool: str, root: Path, arguments: list[str]) -> argparse.Namespace:
    parser = _Parser(prog=tool, allow_abbrev=False)
    for option in OPTIONS[tool]:
        parser.add_argument(option, **FORMS[option])
    parser.set_defaults(root=root)
    for option in OPTIONS[tool]:
        given = [each for each in arguments if each.partition("=")[0] == option]
        if len(given) > 1:
            parser.error(f"{option} is given {len(given)} times")
    return parser.parse_args(arguments)


def run(
    tool: str,
    root: Path,
    arguments: list[str],
    work: Callable[[argparse.Namespace], dict[str, Any]],
) -> int:
    """Do one tool's work. 0: nothing found; 1: faults; 2: a wrong command line."""
    if PROBE in arguments:
        print(json.dumps(handshake(tool), indent=2))
        return 0
    as_json = "--diagnostics-json" in arguments
    try:
        chosen = _parse(tool, root, arguments)
        done = work(chosen)
    except Faults as faults:
        if as_json:
            print(envelope(faults.diagnostics))
        else:
            print(sentences(faults.diagnostics), file=sys.stderr)
        return 2 if faults.diagnostics[0].code == "E_USAGE" else 1
    if getattr(chosen, "summary_json", False):
        print(json.dumps(done, indent=2))
    elif as_json:
        print(envelope([]))
    else:
        print(done["said"] if "said" in done else _told(done), file=sys.stderr)
    return 0


def _told(summary: dict[str, Any]) -> str:
    count, active = summary["obligations"], summary["active"]
    state = "terminal" if summary["terminal"] else "not terminal"
    return f"{active} of {count} obligations are active; the ledger is {state}."
