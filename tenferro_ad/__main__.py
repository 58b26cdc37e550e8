"""The command line.

    python -m tenferro_ad ledger diff before.json after.json
    python -m tenferro_ad doctor

Exit status of `ledger diff`: 0 when nothing asked for by `--fail-on` happened, 1 when
it did; of `doctor`: 1 when a required lane has no device. 2 when a command could not be
carried out (wrong arguments, unreadable files).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from . import __version__
from ._report import Difference, Facts, difference
from .backends import KINDS, doctor
from .errors import InvalidArgumentError

FAIL_ON: Final = ("new-copies", "new-allocations")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    options = _parser().parse_args(argv)
    if options.run is not None:
        return int(options.run(options))
    try:
        before, after = (_read(path) for path in (options.before, options.after))
    except (OSError, UnicodeDecodeError, InvalidArgumentError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    found = difference(before, after)
    print(found if found.exists else "The ledgers agree.")
    failures = list(_failures(found, options.fail_on))
    for failure in failures:
        print(f"FAIL: {failure}")
    return 1 if failures else 0


def _doctor(options: argparse.Namespace) -> int:
    text, missing = doctor(kind for names in options.require for kind in names)
    print(f"tenferro_ad {__version__}\n{text}")
    return 1 if missing else 0


def _kinds(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in KINDS:
            raise argparse.ArgumentTypeError(
                f"no lane is called `{name}`; use {', '.join(KINDS)}"
            )
    return names


def _read(path: Path) -> Facts:
    return Facts.from_json(path.read_text(encoding="utf-8"), str(path))


def _failures(found: Difference, fail_on: Sequence[str]) -> list[str]:
    counts = {
        "new-copies": (found.new_copies, "copies"),
        "new-allocations": (found.new_allocations, "allocations"),
    }
    wanted = [counts[name] for name in FAIL_ON if name in fail_on]
    return [f"{n} new {what}" for n, what in wanted if n]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tenferro_ad", description="Tools of tenferro_ad."
    )
    parser.add_argument(
        "--version", action="version", version=f"tenferro_ad {__version__}"
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    parser.set_defaults(run=None)
    checks = commands.add_parser(
        "doctor",
        help="say which lanes this machine has",
        description="Lists the lanes (CPU, OpenCL, WebGPU, CUDA) with versions and "
        "devices, and for each that is missing what to install.",
    )
    checks.add_argument(
        "--require",
        action="append",
        type=_kinds,
        default=[],
        metavar="KINDS",
        help="exit with 1 unless these kinds (comma-separated) have a device",
    )
    checks.set_defaults(run=_doctor)
    ledger = commands.add_parser("ledger", help="work with stored ledgers")
    actions = ledger.add_subparsers(required=True, metavar="action")
    diff = actions.add_parser(
        "diff",
        help="compare two ledgers",
        description="Compare two ledgers written by `led.to_json()` (or snapshots of "
        "the pytest plugin): by reason, peak, and operation with shape and dtype.",
    )
    diff.add_argument("before", type=Path, help="ledger before the change")
    diff.add_argument("after", type=Path, help="ledger after the change")
    diff.add_argument(
        "--fail-on",
        action="append",
        choices=FAIL_ON,
        default=[],
        help="exit with 1 if there are more of these than before; may be repeated",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
