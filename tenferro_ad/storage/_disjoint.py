"""The one proof that mutable views may be handed out together (contract G2).

Slots are looked up by the caller under its exclusive borrow; from there the order is
the contract's: read the retained facts, settle write injectivity (once for each record
that lacks it), partition by allocation entry, skip empty layouts, compare byte
envelopes. Nothing about layouts, ranges, storage or providers is computed again, no
element is enumerated, and children are made only after the whole proof.

The verdict does not depend on the order of requests: of several faults the gravest is
reported, and pairs are compared in the order of their bytes.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from ..errors import NonInjectiveError, NotProvablyDisjointError, OverlapError
from ._descriptor import CheckedDescriptor, CheckedInjectiveDescriptor
from ._layout import WriteInjectivityProof, prove_injective, validations


@final
@dataclass(frozen=True, slots=True)
class Request:
    """Retained facts of one requested view.

    `entry` is the allocation entry: owners in one group never overlap, so two entries
    never share bytes.
    """

    position: int
    entry: int
    descriptor: CheckedDescriptor
    proof: WriteInjectivityProof | None


def prove_disjoint(
    operation: str, requests: Sequence[Request]
) -> list[CheckedInjectiveDescriptor]:
    """Prove that the requested layouts are writable and pairwise disjoint.

    Raises:
        NonInjectiveError: A layout without a retained proof cannot be proven writable.
        OverlapError: Two layouts share bytes for certain.
        NotProvablyDisjointError: Two byte envelopes overlap.

    Cost: O(n log n) for n requests, O(rank log rank) for each missing proof.
    """
    validations.disjointness += 1
    proven: list[CheckedInjectiveDescriptor] = []
    unproven: list[int] = []
    for request in requests:
        proof = request.proof
        if proof is None:
            proof = prove_injective(request.descriptor.layout)
        if proof is None:
            unproven.append(request.position)
        else:
            proven.append(CheckedInjectiveDescriptor(request.descriptor, proof))
    if unproven:
        raise NonInjectiveError(
            operation=operation,
            found="elements that share bytes, or cannot be proven not to",
            slots=tuple(sorted(unproven)),
        )
    _compare(operation, requests)
    return proven


def prove_places(places: Sequence[tuple[int, int, int, int]]) -> None:
    """Prove that places of one arena that are in use together share no bytes.

    Args:
        places: first and last moment of use, offset and bytes.

    Raises:
        OverlapError: two of them share bytes while both are in use.

    Cost: O(n log n) comparisons and O(n) moves for n places.
    """
    validations.disjointness += 1
    ends: list[tuple[int, int, int]] = []  # last moment, offset, number
    used: list[tuple[int, int, int]] = []  # offset, end, number; in order of offset
    for number in sorted(range(len(places)), key=lambda k: places[k][0]):
        start, stop, offset, nbytes = places[number]
        while ends and ends[0][0] < start:
            _, at, old = heapq.heappop(ends)
            del used[bisect.bisect_left(used, (at, -1, old))]
        if not nbytes:
            continue
        entry = (offset, offset + nbytes, number)
        k = bisect.bisect_left(used, entry)
        for other in used[max(k - 1, 0) : k + 1]:
            if other[0] < entry[1] and entry[0] < other[1]:
                raise OverlapError(
                    operation="schedule",
                    found=f"places {min(number, other[2])} and "
                    f"{max(number, other[2])} share bytes while both are in use",
                    slots=(min(number, other[2]), max(number, other[2])),
                )
        used.insert(k, entry)
        heapq.heappush(ends, (stop, offset, number))


def _compare(operation: str, requests: Sequence[Request]) -> None:
    partitions: dict[int, list[Request]] = {}
    for request in requests:
        if request.descriptor.size:
            partitions.setdefault(request.entry, []).append(request)
    certain: list[tuple[int, int]] = []
    possible: list[tuple[int, int]] = []
    for members in partitions.values():
        members.sort(key=lambda r: (r.descriptor.span.start, r.descriptor.span.stop))
        for at, first in enumerate(members):
            for second in members[at + 1 :]:
                if second.descriptor.span.start >= first.descriptor.span.stop:
                    break
                pair = (first.position, second.position)
                clash = certain if _share_bytes(first, second) else possible
                clash.append((min(pair), max(pair)))
    if certain:
        raise OverlapError(
            operation=operation,
            found=f"slots {_listed(certain)} share bytes",
            slots=tuple(sorted({n for pair in certain for n in pair})),
        )
    if possible:
        raise NotProvablyDisjointError(
            operation=operation,
            found=f"the byte envelopes of slots {_listed(possible)} overlap",
            slots=tuple(sorted({n for pair in possible for n in pair})),
        )


def _listed(pairs: list[tuple[int, int]]) -> str:
    return ", ".join(f"{a} and {b}" for a, b in sorted(pairs)[:3])


def _share_bytes(first: Request, second: Request) -> bool:
    """Whether overlap is certain: the ends of an envelope are occupied bytes."""
    a, b = first.descriptor, second.descriptor
    return _occupies_end(a, b) or _occupies_end(b, a)


def _occupies_end(a: CheckedDescriptor, b: CheckedDescriptor) -> bool:
    """Whether `a` occupies an end of `b`: it has no gaps there, or has the same end."""
    span, ends = a.span, (b.span.start, b.span.stop - 1)
    if a.nbytes == len(span.byte_range):
        return any(span.start <= end < span.stop for end in ends)
    return span.start == ends[0] or span.stop - 1 == ends[1]
