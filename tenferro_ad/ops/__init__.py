"""What operations mean: the table, its expressions and its rules."""

from . import (
    _along,
    _arrange,
    _constants,
    _contractions,
    _indexing,
    _movement,
    _place,
    _reductions,
)
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
from ._place import Key, span
from ._program import Equation, Program
from ._scalar import ElementwiseOp, elementwise, node_dtype

_ROWS = (_along, _arrange, _constants, _indexing, _place, _contractions, _movement, _reductions)

__all__ = [
    "OPS",
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
    "const",
    "elementwise",
    "exact",
    "expand",
    "integer_power",
    "node_dtype",
    "project",
    "register",
    "reshaped",
    "select",
    "span",
    "topological",
    "var",
]
