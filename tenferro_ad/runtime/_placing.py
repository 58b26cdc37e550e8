"""Places in an arena: for each value the lowest gap that is free while it lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ._places import Root

ALIGN: Final = 64


def placed(roots: list[Root]) -> int:
    """Give each root an offset; the bytes that the arena needs."""
    alive: list[Root] = []  # by offset
    size = 0
    for root in roots:
        alive = [r for r in alive if r.stop >= root.start]
        needed = -(-root.nbytes // ALIGN) * ALIGN
        at, best, gap = 0, -1, 0
        for other in alive:
            room = other.offset - at
            if room >= needed and (best < 0 or room < gap):
                best, gap = at, room
            at = other.offset + -(-other.nbytes // ALIGN) * ALIGN
        root.offset = at if best < 0 else best
        size = max(size, root.offset + needed)
        alive.append(root)
        alive.sort(key=lambda r: r.offset)
    return size
