"""Run every active obligation of the storage ownership registry, and log it.

    python3 scripts/run-storage-ownership-contracts.py
        --receipt-out FILE [--base-commit REVISION]

The tracked tree must be HEAD. The log is what the checker takes as proof of execution;
it is written when commands fail too, with their exit statuses.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from storage_ownership import cli, runner


def execute(chosen: argparse.Namespace) -> dict[str, Any]:
    return runner.run(
        chosen.root, chosen.manifest, chosen.base_commit, chosen.receipt_out
    )


def main(arguments: list[str]) -> int:
    return cli.run(cli.RUNNER, Path(__file__).resolve().parents[1], arguments, execute)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
