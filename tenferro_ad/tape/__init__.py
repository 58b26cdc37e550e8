"""What is kept: recordings, retention, the sweeps, checkpoint regions, gradients."""

from ._backward import sweep
from ._bodies import TOOLS
from ._checkpoint import RegionCall, digest, followed
from ._gradients import Gradients
from ._record import NO_STEPS, Leaf, Retained, TapeRecord, hold, let_go
from ._retention import AdValueRecord, TapeRetention, ValueKey

__all__ = [
    "NO_STEPS",
    "TOOLS",
    "AdValueRecord",
    "Gradients",
    "Leaf",
    "RegionCall",
    "Retained",
    "TapeRecord",
    "TapeRetention",
    "ValueKey",
    "digest",
    "followed",
    "hold",
    "let_go",
    "sweep",
]
