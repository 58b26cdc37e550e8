"""The arguments of a function with derivative rules of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import optree

from .._aval import Aval, is_inexact, mismatch
from ..errors import InvalidArgumentError, a_kind
from ._eager import EagerTensor
from ._make import as_tensor
from ._pytrees import NAMESPACE, flatten


@final
class Forms:
    """The forms of the arguments, without their values.

    Attributes:
        fixed: arguments that have no derivative, in order.
        avals: of the tensors among the others, in order.
    """

    __slots__ = ("_at", "_defs", "_names", "_numbers", "_operation", "avals", "fixed")

    def __init__(
        self,
        operation: str,
        fixed: list[Any],
        numbers: list[int],
        defs: list[Any],
        at: list[int],
        names: list[str],
        avals: list[Aval],
    ) -> None:
        self._operation, self.fixed = operation, fixed
        self._numbers, self._defs = numbers, defs  # of the others
        self._at, self._names, self.avals = at, names, avals

    def cotangents(self, given: Any) -> list[EagerTensor | None]:
        """What `bwd` gave, one for each tensor; None where nothing depends on it.

        Raises:
            InvalidArgumentError: not a tuple with an entry for each argument, or an
                entry of another structure.
            ShapeError, DTypeError: a cotangent does not fit; names the argument.
        """
        self._check_count(given)
        leaves: list[Any] = []
        for n, treedef, tree in zip(self._numbers, self._defs, given, strict=True):
            if tree is None:
                leaves += [None] * treedef.num_leaves
                continue
            try:
                leaves += treedef.flatten_up_to(tree)
            except ValueError:
                raise InvalidArgumentError(
                    operation=self._operation,
                    argument=f"bwd (argument {n})",
                    found=f"a cotangent of the structure {flatten(tree)[1]}",
                    fix=f"give it the structure of the argument, {treedef}",
                ) from None
        return [
            self._fitting(leaves[i], aval, name)
            for i, aval, name in zip(self._at, self.avals, self._names, strict=True)
        ]

    def _check_count(self, given: Any) -> None:
        many = isinstance(given, tuple | list)
        if many and len(given) == len(self._defs):
            return
        what = f"{len(given)} cotangents" if many else a_kind(given)
        raise InvalidArgumentError(
            operation=self._operation,
            argument="bwd",
            found=f"{what} for {len(self._defs)} arguments",
            fix="return a tuple with one cotangent for each argument that "
            "`nondiff_argnums` does not name; None is a zero",
        )

    def _fitting(self, ct: Any, aval: Aval, name: str) -> EagerTensor | None:
        if ct is None or not is_inexact(aval.dtype):
            return None
        if not optree.tree_is_leaf(ct, namespace=NAMESPACE):
            raise InvalidArgumentError(
                operation=self._operation,
                argument=f"bwd ({name})",
                found=f"a cotangent of the structure {flatten(ct)[1]}",
                fix="give one tensor for a tensor",
            )
        found = as_tensor(ct, aval.device)
        if not found.aval.same(aval):
            raise mismatch(
                found.aval,
                aval,
                operation=self._operation,
                argument=f"bwd ({name})",
                found=f"{found.aval!r} for an argument {aval!r}",
                fix="give the cotangent the shape and dtype of the argument",
            )
        return found


@final
class Arguments:
    """The arguments of one call: fixed ones, and pytrees with tensors.

    Attributes:
        forms: what is known of them without their values.
        tensors: the tensors of those that are not fixed, in order.
    """

    __slots__ = ("_at", "_defs", "_full", "_leaves", "_moving", "forms", "tensors")

    def __init__(self, operation: str, full: list[Any], fixed: set[int]) -> None:
        self._full = full
        self._moving = [n for n in range(len(full)) if n not in fixed]
        self._defs: list[Any] = []
        self._leaves: list[Any] = []
        self._at: list[int] = []
        names: list[str] = []
        for n in self._moving:
            leaves, treedef = flatten(full[n])
            self._defs.append(treedef)
            for path, x in zip(treedef.paths(), leaves, strict=True):
                if isinstance(x, EagerTensor | np.ndarray):
                    self._at.append(len(self._leaves))
                    parts = "".join(f"[{part!r}]" for part in path)
                    names.append(f"argument {n}{parts}")
                self._leaves.append(x)
        self.tensors: list[EagerTensor] = [as_tensor(self._leaves[i]) for i in self._at]
        self.forms = Forms(
            operation,
            [full[n] for n in sorted(fixed)],
            self._moving,
            self._defs,
            self._at,
            names,
            [x.aval for x in self.tensors],
        )

    def all(self, tensors: Sequence[Any]) -> list[Any]:
        """All arguments, with other tensors."""
        full = list(self._full)
        for n, tree in zip(self._moving, self.trees(tensors), strict=True):
            full[n] = tree
        return full

    def trees(self, tensors: Sequence[Any]) -> list[Any]:
        """The arguments that are not fixed, with other tensors."""
        return self._unflatten(self._leaves, tensors)

    def tangents(self, tensors: Sequence[Any]) -> list[Any]:
        """Tangents in the structure of those arguments: 0.0 beside a Python number,
        None where there is none."""
        numbers = (float, complex)
        blank = [0.0 if isinstance(x, numbers) else None for x in self._leaves]
        return self._unflatten(blank, tensors)

    def _unflatten(self, leaves: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
        leaves = list(leaves)
        for i, x in zip(self._at, tensors, strict=True):
            leaves[i] = x
        found, start = [], 0
        for treedef in self._defs:
            stop = start + treedef.num_leaves
            found.append(optree.tree_unflatten(treedef, leaves[start:stop]))
            start = stop
        return found
