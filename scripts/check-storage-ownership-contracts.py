"""Check the storage ownership registry, a transition of it, or a receipt.

    python3 scripts/check-storage-ownership-contracts.py
        [--base-commit REVISION] [--receipt FILE]

Without options the manifest is checked by itself. A base compares it with an earlier
commit; a receipt is believed only if the runner wrote it for HEAD. docs/verification.md
explains rows, promotions, revisions and every diagnostic.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from storage_ownership import cli
from storage_ownership.checks import candidate, structure
from storage_ownership.diagnostics import require
from storage_ownership.receipt import binding, read, summary


def check(chosen: argparse.Namespace) -> dict[str, Any]:
    """What follows from the manifest, and from the receipt if one was given."""
    root, name = chosen.root, chosen.manifest
    if chosen.base_commit is None and chosen.receipt is None:
        return summary(structure(root, name), None, None, proven=False)
    repository, base, manifest = candidate(root, name, chosen.base_commit)
    if chosen.receipt is not None:
        log = read(chosen.receipt)
        require(binding(log, manifest, repository.candidate, base))
    proven = chosen.receipt is not None
    return summary(manifest, repository.candidate, base, proven)


def main(arguments: list[str]) -> int:
    return cli.run(cli.CHECKER, Path(__file__).resolve().parents[1], arguments, check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
