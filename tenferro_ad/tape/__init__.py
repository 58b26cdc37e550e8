"""What is kept: recordings, retention, the sweeps, checkpoint regions, gradients."""

from ._backward import sweep
from ._checkpoint import RegionCall, digest
from ._gradients import Gradients
from ._record import Leaf, Retained, TapeRecord, hold, let_go

__all__ = [
    "Gradients",
    "Leaf",
    "RegionCall",
    "Retained",
    "TapeRecord",
    "digest",
    "hold",
    "let_go",
    "sweep",
]
