"""Machine code of a printed contiguous kernel, beside that of a plain loop over arrays.

The kernel of `a * b + a` for contiguous operands of fixed rank is printed as any lane
prints it and built by PoCL, and so is a reference written by hand over slices of plain
arrays. The inner loop of each is found in the object code. `--write` stores the report
that `scripts/check-static-rank-codegen.py` verifies; it names the commit, so the
tracked tree must be clean. Needs the extra `opencl` and `objdump`.

    python benchmarks/static_rank_codegen.py [--write]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
N = 1_000_000
REFERENCE = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
__kernel void reference(
    __global const double *a, __global const double *b, __global double *y, Slices s
) {
    const int i = (int)get_global_id(0);
    if (i >= s.v[0]) { return; }
    const double x = a[s.v[1] + i];
    const double product = x * b[s.v[2] + i];
    y[s.v[3] + i] = product + x;
}
"""


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


checker = module(ROOT / "scripts" / "check-static-rank-codegen.py")


def function(text: str, name: str) -> list[str]:
    """The instructions of one function in the output of `objdump -d`."""
    body = re.search(rf"^[0-9a-f]+ <{name}>:\n((?:.+\n)+)", text + "\n", re.MULTILINE)
    assert body is not None, name
    lines = re.findall(r"^ *[0-9a-f]+:\t(.*?) *(?:#.*)?$", body[1], re.MULTILINE)
    # Where something stands is nobody's business, and differs with every build.
    return [re.sub(r"[0-9a-f]+ <.*>|0x[0-9a-f]+\(%rip\)", "*", each) for each in lines]


def build(source: str, entry: str, params: Any, cache: Path) -> list[str]:
    """Build a kernel, run it, compare it with NumPy, and read its code."""
    import pyopencl as cl

    context = cl.Context([device()])
    queue = cl.CommandQueue(context)
    kernel = getattr(cl.Program(context, source).build(), entry)
    a, b = np.random.default_rng(0).random((2, N))
    flags = cl.mem_flags
    copied = flags.READ_ONLY | flags.COPY_HOST_PTR
    given = [cl.Buffer(context, copied, hostbuf=x) for x in (a, b)]
    out = cl.Buffer(context, flags.READ_WRITE, a.nbytes)
    kernel.set_args(*given, out, np.asarray(params, np.int32))
    cl.enqueue_nd_range_kernel(queue, kernel, (-(-N // 64) * 64,), (64,)).wait()
    y = np.empty(N)
    cl.enqueue_copy(queue, y, out).wait()
    np.testing.assert_allclose(y, a * b + a, rtol=1e-15)
    (built,) = cache.rglob(f"{entry}.so")
    command = ["objdump", "-d", "--no-show-raw-insn", str(built)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return function(text, f"_pocl_kernel_{entry}_workgroup_fast")


def device() -> Any:
    import pyopencl as cl

    for found in cl.get_platforms():
        if found.name == "Portable Computing Language":
            return found.get_devices()[0]
    raise SystemExit("PoCL is not there: install the extra `opencl`.")


def slices(params: Any) -> str:
    """The reference's type for the numbers that the printed kernel takes as well."""
    return f"typedef struct {{ int v[{len(params)}]; }} Slices;\n{REFERENCE}"


def git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def report() -> dict[str, Any]:
    launch = checker.printed()
    with tempfile.TemporaryDirectory() as cache:  # PoCL reads this once
        os.environ |= {"POCL_CACHE_DIR": cache, "PYOPENCL_NO_CACHE": "1"}
        where = (launch.params, Path(cache))
        built = {
            "printed": build(launch.source, launch.entry, *where),
            "reference": build(slices(launch.params), "reference", *where),
        }
    return {
        "schema": checker.SCHEMA,
        "path": checker.REPORT,
        "commit": git("rev-parse", "HEAD"),
        "environment": {
            "machine": platform.machine(),
            "system": platform.system(),
            "compiler": device().platform.version.strip(),
        },
        "rank": checker.RANK,
        "source": launch.source,
        "group": launch.group,
        "code": {name: "\n".join(lines) for name, lines in built.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the report")
    chosen = parser.parse_args()
    if chosen.write and git("status", "--porcelain", "--untracked-files=no"):
        print("The tracked tree differs from HEAD: commit first.", file=sys.stderr)
        return 2
    text = json.dumps(report(), indent=1) + "\n"
    if chosen.write:
        (ROOT / checker.REPORT).write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
