"""One expression form, several printers: the kernels of the table as source text.

The seam with providers: a printer (`OpenCLPrinter`, `WgslPrinter`, `CudaPrinter`, made
of the features of a device) and its three calls, each of which gives a `Lowered`,
`lower(call, ins, outs, accumulate=False)`, `lower_copy(aval, source, target)` and
`lower_chain(equations, inputs, outputs, ins, outs)`.

- `call` is a `Call` of the table with kernel `Elementwise` or a `Write` that has a
  device form; `ins` and `outs` are layouts: `Strided(offset, strides)` in elements of
  the operand's dtype over the whole buffer, or `SCALAR` for a 0-d operand whose value
  is put into the parameters at launch (`put_number`). Any strides: negative, zero,
  transposed; never a copy. An operand of an `Elementwise` call may be the output itself
  (same buffer, same layout).
- `accumulate=True` adds the result to what the only output holds.
- `lower_copy` writes the elements of a view in the order of another layout.
- `lower_chain` prints elementwise equations of a `Program` as one kernel.
- Lowering depends on structure and layouts only: cache it by (call, layouts). Source
  text depends on even less (sizes and strides are parameters), so programs are built
  once for many shapes: cache them by `Launch.source`.
- Nothing to do (an empty result) gives no launches; an operand without elements may
  have no buffer then. Launches are in order on one queue.
- A row or dtype that the lane lacks raises `UnsupportedError` from `lower`, before
  anything is allocated; `printer.supports(call)` asks without raising.
- Storage: bool is one byte 0 or 1 in OpenCL and CUDA and a `u32` in WGSL; complex
  numbers are pairs; other dtypes are NumPy's. `features` is what the device has beyond
  the least: OpenCL `{"f64"}`; WGSL `{"f16", "f64", "i64"}`; CUDA needs none.
"""

from ._joined import joined
from ._launch import (
    SCALAR,
    Argument,
    Launch,
    Layout,
    Lowered,
    Slot,
    Strided,
    put_number,
)
from ._printer import CudaPrinter, OpenCLPrinter, Printer, WgslPrinter, contiguous

__all__ = [
    "SCALAR",
    "Argument",
    "CudaPrinter",
    "Launch",
    "Layout",
    "Lowered",
    "OpenCLPrinter",
    "Printer",
    "Slot",
    "Strided",
    "WgslPrinter",
    "contiguous",
    "joined",
    "put_number",
]
