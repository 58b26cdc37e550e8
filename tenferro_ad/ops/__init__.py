"""What operations mean: the table, its expressions and its rules."""

from . import (
    _along,
    _arrange,
    _constants,
    _contractions,
    _convolution,
    _cumulative,
    _fft,
    _indexing,
    _linalg,
    _movement,
    _network,
    _place,
    _pooling,
    _random,
    _reductions,
    _reinterpret,
    _sorting,
    _special,
)
from ._call import UNPREPARED, Applied
from ._constants import exact
from ._elementwise import integer_power
from ._expr import Expr, call, const, select, topological, var
from ._movement import reshaped
from ._op import (
    OPS,
    Call,
    Elementwise,
    Evaluator,
    Library,
    Op,
    RuleSpec,
    View,
    Write,
    broadcast_shapes,
    expand,
    project,
    register,
)
from ._passes import key_of, optimise, renumbered, subprogram
from ._place import Key, span
from ._program import (
    Equation,
    Program,
    compute,
    evaluate,
    last_uses,
    may_alias,
    writable,
)
from ._scalar import ElementwiseOp, elementwise, node_dtype
from ._special import polygamma

# Importing a module of rows enters them into the table.
_ROWS = (
    _along,
    _arrange,
    _constants,
    _contractions,
    _convolution,
    _cumulative,
    _fft,
    _indexing,
    _linalg,
    _movement,
    _network,
    _place,
    _pooling,
    _random,
    _reductions,
    _reinterpret,
    _sorting,
    _special,
)

__all__ = [
    "OPS",
    "UNPREPARED",
    "Applied",
    "Call",
    "Elementwise",
    "ElementwiseOp",
    "Equation",
    "Evaluator",
    "Expr",
    "Key",
    "Library",
    "Op",
    "Program",
    "RuleSpec",
    "View",
    "Write",
    "broadcast_shapes",
    "call",
    "compute",
    "const",
    "elementwise",
    "evaluate",
    "exact",
    "expand",
    "integer_power",
    "key_of",
    "last_uses",
    "may_alias",
    "node_dtype",
    "optimise",
    "polygamma",
    "project",
    "register",
    "renumbered",
    "reshaped",
    "select",
    "span",
    "subprogram",
    "topological",
    "var",
    "writable",
]
