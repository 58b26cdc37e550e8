"""What operations mean: the table, its expressions and its rules."""

from . import _contractions, _movement, _reductions
from ._elementwise import integer_power
from ._expr import Expr, call, const, select, topological, var
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
    expand,
    project,
    register,
)
from ._program import Equation, Program
from ._scalar import ElementwiseOp, elementwise, node_dtype

_ROWS = (_contractions, _movement, _reductions)

__all__ = [
    "OPS",
    "Call",
    "Elementwise",
    "ElementwiseOp",
    "Equation",
    "Evaluator",
    "Expr",
    "Library",
    "Op",
    "Program",
    "RuleSpec",
    "View",
    "Write",
    "call",
    "const",
    "elementwise",
    "expand",
    "integer_power",
    "node_dtype",
    "project",
    "register",
    "select",
    "topological",
    "var",
]
