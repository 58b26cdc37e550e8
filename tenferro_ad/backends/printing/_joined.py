"""Several printed OpenCL programs as one: a compiler reads what all of them need once,
and its front end costs as much for one kernel as for thirty.

A program is a head, the type of indices, the form of its parameters, functions and one
kernel. Functions of one name are one text (their names hold the dtype), so each stands
once; the type of indices and the form of parameters belong to a kernel and are macros
around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_PROGRAM: Final = re.compile(
    r"(?P<head>.*?)^typedef (?P<index>\w+) ix;\n"
    r"(?:typedef struct (?P<params>\{[^}]*\}) Params;\n)?"
    r"(?P<library>.*?)(?P<kernel>^__kernel void (?P<entry>\w+)\(.*)",
    re.DOTALL | re.MULTILINE,
)
_AFTER_FUNCTION: Final = re.compile(r"(?<=\n\}\n)")


def joined(sources: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Programs that together have the kernels of `sources`.

    Returns:
        The text of each program, and those of `sources` whose kernels it has. Sources
        of one head share a program.
    """
    groups: dict[str, tuple[dict[str, None], list[str], list[str]]] = {}
    for source in sources:
        found = _PROGRAM.fullmatch(source)
        assert found is not None, source
        functions, kernels, members = groups.setdefault(found["head"], ({}, [], []))
        library = _AFTER_FUNCTION.split(found["library"].strip("\n") + "\n")
        functions.update((f.strip("\n"), None) for f in library if f.strip())
        kernels.append(_kernel(found))
        members.append(source)
    return [
        ("\n".join([head + "\n".join(functions), *kernels]), members)
        for head, (functions, kernels, members) in groups.items()
    ]


def _kernel(found: re.Match[str]) -> str:
    own = f"Params_{found['entry']}"
    lines = [f"#define ix {found['index']}"]
    if found["params"]:
        lines += [f"#define Params {own}", f"typedef struct {found['params']} {own};"]
    lines += [found["kernel"].strip("\n"), "#undef ix"]
    if found["params"]:
        lines.append("#undef Params")
    return "\n".join(lines)


__all__ = ["joined"]
