"""What `python -m tenferro_ad doctor` says: lanes found, versions, what is missing."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib import metadata

from ._registry import LaneReport, reports

_LIBRARIES = ("numpy", "scipy", "optree", "opt_einsum")


def doctor(required: Iterable[str] = ()) -> tuple[str, list[str]]:
    """A report on this machine, and the required kinds that have no device.

    Args:
        required: kinds that must be there.

    Cost: imports the libraries of all lanes that are installed; opens no device.
    """
    lines = [f"Python {platform.python_version()} on {platform.platform()}"]
    lines += [f"  {name} {metadata.version(name)}" for name in _LIBRARIES]
    found = list(reports())
    for report in found:
        lines += ["", *_lane(report)]
    present = {report.kind for report in found if report.devices}
    missing = [kind for kind in dict.fromkeys(required) if kind not in present]
    if missing:
        lines += ["", f"MISSING: {', '.join(missing)}"]
    return "\n".join(lines), missing


def _lane(report: LaneReport) -> list[str]:
    lines = [f"{report.kind}: {report.package}"]
    if not report.devices:
        return [*lines, f"  none: {report.problem}", f"  {report.fix}"]
    for info in report.devices:
        how = "synchronous" if info.is_synchronous else "asynchronous"
        lines.append(f"  {info.name}  {info.description}  ({info.version}, {how})")
    return lines
