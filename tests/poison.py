"""Memory that shows misuse: what the poison lane puts in place of quiet memory.

Roots get canary bytes on both sides, checked when the root goes; released roots are
filled with a signalling pattern, so that a late reader sees signalling NaNs or absurd
integers; no freed memory is handed out again. `make test-poison` runs the storage and
contract suites this way, with `PYTHONMALLOC=debug`. It stands where a compiled language
has an interpreter that checks every access.

Findings are kept and fail the test that was running (`found`). Only memory that was
made here is ever filled: arrays of the outside are never touched.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from typing import Any

import numpy as np

from tenferro_ad.backends import CPU
from tenferro_ad.storage import RetentionContainer, RootResource, ValueRecord

Array = np.ndarray[Any, Any]

PAD = 256
CANARY = 0xA5
PATTERN = np.frombuffer(b"\xdb\xdb\xdb\xdb\xdb\xdb\xf4\x7f", np.uint8)
"""Eight bytes that are a signalling NaN as float64."""

_blocks: dict[int, Array] = {}  # start of a guarded root: its whole block
_findings: list[str] = []
_installed = False


def is_installed() -> bool:
    """Whether this process runs the poison lane."""
    return _installed


def found() -> Iterator[str]:
    """What was seen since the last call."""
    while _findings:
        yield _findings.pop()


def _start(array: Array) -> int:
    at: int = array.__array_interface__["data"][0]
    return at


def guarded(shape: Any, dtype: Any) -> Array:
    """An unwritten array between two canaries."""
    code = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * code.itemsize
    raw = np.empty(size + 2 * PAD + 64, np.uint8)
    lead = -_start(raw) % 64  # cache lines, as NumPy's large arrays have them
    block = raw[lead : lead + size + 2 * PAD]
    block[:PAD] = CANARY
    block[PAD + size :] = CANARY
    _fill(block[PAD : PAD + size])
    array = np.ndarray(shape, code, block, PAD)
    if size:
        _blocks[_start(array)] = block
    return array


def memory(nbytes: int) -> Array:
    """Zeroed bytes for a test's own root: guarded in the poison lane."""
    if not _installed:
        return np.zeros(nbytes, np.uint8)
    array = guarded((nbytes,), np.uint8)
    array[...] = 0
    return array


def like(array: Array) -> Array:
    """The given elements in a test's own root: guarded in the poison lane."""
    if not _installed:
        return array.copy()
    held = guarded(array.shape, array.dtype)
    held[...] = array
    return held


def freed(buffer: object) -> None:
    """A root is over: look at its canaries and make its bytes unusable."""
    if not isinstance(buffer, np.ndarray) or not buffer.size:
        return
    start = _start(buffer)
    block = _blocks.pop(start, None)
    if block is None:
        return
    for side, part in (("before", block[:PAD]), ("after", block[-PAD:])):
        if not np.all(part == CANARY):
            _findings.append(f"bytes {side} a root of {block.size - 2 * PAD} written")
    _fill(block[PAD:-PAD])


def _fill(content: Array) -> None:
    whole = content.size - content.size % PATTERN.size
    content[:whole].reshape(-1, PATTERN.size)[...] = PATTERN
    content[whole:] = PATTERN[: content.size - whole]


def install() -> None:
    """Guard every root of the CPU device and fill every root that is released."""
    global _installed
    _installed = True
    CPU.small = guarded
    CPU._take = lambda nbytes: guarded((nbytes,), np.uint8)  # type: ignore[method-assign]
    CPU.give_back = lambda buffer: None  # type: ignore[method-assign]
    _before(RootResource, "_release", lambda root: freed(root.allocation))
    _before(ValueRecord, "__del__", _freed_inline)
    _before(RetentionContainer, "__del__", _freed_container)


def _freed_inline(record: ValueRecord) -> None:
    if record.home is None and record.account is not None:
        freed(record.array)


def _freed_container(home: RetentionContainer) -> None:
    if home._account is not None:
        freed(home._array)


def _before(kind: Any, name: str, first: Any) -> None:
    plain = getattr(kind, name)

    def wrapped(self: Any) -> None:
        first(self)
        plain(self)

    setattr(kind, name, wrapped)
    # Roots that outlive the interpreter's modules are released plainly.
    atexit.register(setattr, kind, name, plain)
