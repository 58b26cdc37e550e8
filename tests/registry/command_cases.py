"""One fault each in the command or the artifact of a row; see `fault_cases`."""

from __future__ import annotations

from tests.registry.fault_cases import Case, both, of
from tests.registry.support import DOCUMENT

ARGV = ("command", "argv")
COMMANDS: list[Case] = [
    (
        "E_COMMAND_KIND",
        {"command_id": "cmd-p0-a", "actual": "shell"},
        of("p0-a", "command", "kind", to="shell"),
    ),
    (
        "E_COMMAND_ARGV",
        {
            "command_id": "cmd-p0-a",
            "index": 0,
            "expected": "pytest",
            "actual": "sh",
        },
        of("p0-a", *ARGV, 0, to="sh"),
    ),
    (
        "E_COMMAND_ARGV",  # mypy is strict or not run
        {
            "command_id": "cmd-p1-b",
            "index": 1,
            "expected": "--strict",
            "actual": "tests",
        },
        both(of("p1-b", *ARGV, to=["mypy", "tests"])),
    ),
    (
        "E_COMMAND_ARGV",
        {"command_id": "cmd-p0-a", "index": 0, "expected": "pytest", "actual": None},
        both(of("p0-a", *ARGV, to=[]), of("p0-a", "command", "path_args", to=[])),
    ),
    (
        "E_COMMAND_ARGUMENT",
        {"command_id": "cmd-p0-a", "index": 1, "actual": "--pdb"},
        of("p0-a", *ARGV, 1, to="--pdb"),
    ),
    (
        "E_COMMAND_ARGUMENT",  # code is not a script
        {"command_id": "cmd-p1-a", "index": 1, "actual": "-c"},
        both(of("p1-a", *ARGV, 1, to="-c"), of("p1-a", "command", "path_args", to=[2])),
    ),
    (
        "E_COMMAND_ARGUMENT",  # a test that is no file of Python
        {"command_id": "cmd-p0-a", "index": 2, "actual": "tests"},
        of("p0-a", *ARGV, 2, to="tests"),
    ),
    (
        "E_COMMAND_ARGUMENT",  # the word of `-m` is one of a list
        {"command_id": "cmd-p2-a", "index": 2, "actual": "slow or shared"},
        both(
            of("p2-a", *ARGV, to=["pytest", "-m", "slow or shared", "tests/test_a.py"]),
            of("p2-a", "command", "path_args", to=[3]),
        ),
    ),
    (
        "E_COMMAND_ARGUMENT",  # an option that waits for its word
        {"command_id": "cmd-p2-a", "index": 2, "actual": "-m"},
        of("p2-a", *ARGV, to=["pytest", "tests/test_a.py", "-m"]),
    ),
    (
        "E_COMMAND_ARGUMENT",  # nothing to run
        {"command_id": "cmd-p0-a", "index": 2, "actual": None},
        both(
            of("p0-a", *ARGV, to=["pytest", "-q"]),
            of("p0-a", "command", "path_args", to=[]),
        ),
    ),
    (
        "E_COMMAND_PATH_ARGS",
        {"command_id": "cmd-p1-a", "expected": [1, 2], "actual": [1]},
        of("p1-a", "command", "path_args", to=[1]),
    ),
    (
        "E_COMMAND_PATH_ARGS",
        {"command_id": "cmd-p1-a", "expected": [1, 2], "actual": [1, 2, 9]},
        of("p1-a", "command", "path_args", to=[1, 2, 9]),
    ),
    (
        "E_COMMAND_ARTIFACT",
        {
            "command_id": "cmd-p0-a",
            "expected": "artifact-p0-a",
            "actual": "artifact-p2-a",
        },
        of("p0-a", "command", "artifact_id", to="artifact-p2-a"),
    ),
    (
        "E_COMMAND_ARGV",  # one id, two argvs
        {
            "command_id": "cmd-p9-a",
            "index": 2,
            "expected": None,
            "actual": "-x",
        },
        both(
            of("p9-b", "artifact", to=DOCUMENT["obligations"][5]["artifact"]),
            of(
                "p9-b",
                "command",
                to=DOCUMENT["obligations"][5]["command"]
                | {"argv": ["pytest", "tests/test_d.py", "-x"]},
            ),
        ),
    ),
    (
        "E_COMMAND_IDENTITY",  # one id, two folders
        {"command_id": "cmd-p9-a", "field": "cwd"},
        both(
            of("p9-b", "artifact", to=DOCUMENT["obligations"][5]["artifact"]),
            of(
                "p9-b",
                "command",
                to=DOCUMENT["obligations"][5]["command"] | {"cwd": "tests"},
            ),
        ),
    ),
    (
        "E_COMMAND_DUPLICATE",
        {"command_id": "cmd-p9-b", "duplicate_of": "cmd-p9-a"},
        both(
            of("p9-b", *ARGV, to=["pytest", "tests/test_d.py"]),
            of("p9-b", "command", "path_args", to=[1]),
        ),
    ),
    (
        "E_COMMAND_TARGET",
        {"command_id": "cmd-p2-a", "index": 1, "actual": "tests/test_z.py"},
        of("p2-a", *ARGV, 1, to="tests/test_z.py"),
    ),
    (
        "E_COMMAND_TARGET",
        {"command_id": "cmd-p0-a", "index": 2, "actual": "tests/test_a.py::test_two"},
        of("p0-a", *ARGV, 2, to="tests/test_a.py::test_two"),
    ),
]

ARTIFACTS: list[Case] = [
    (
        "E_ARTIFACT_KIND",
        {"artifact_id": "artifact-p0-a", "actual": "fixture"},
        of("p0-a", "artifact", "kind", to="fixture"),
    ),
    (
        "E_ARTIFACT_IDENTITY",
        {"artifact_id": "artifact-p9-a", "field": "kind"},
        both(
            of("p9-b", "artifact", "id", to="artifact-p9-a"),
            of("p9-b", "artifact", "kind", to="report"),
            of("p9-b", "command", "artifact_id", to="artifact-p9-a"),
        ),
    ),
    (
        "E_ARTIFACT_MISSING",
        {"artifact_id": "artifact-p0-a", "path": "tests/test_z.py"},
        of("p0-a", "artifact", "path", to="tests/test_z.py"),
    ),
    (
        "E_ARTIFACT_MISSING",
        {"artifact_id": "artifact-p0-a", "path": "docs/none.md"},
        of("p0-a", "artifact", "more_paths", to=["docs/r.json", "docs/none.md"]),
    ),
    *(
        (
            "E_ARTIFACT_SELECTOR",
            {"artifact_id": "artifact-p0-a", "selector": selector},
            both(
                of("p0-a", "artifact", "path", to=path),
                of("p0-a", "artifact", "selector", to=selector),
            ),
        )
        for path, selector in (
            ("tests/test_a.py", "TestB.test_one"),
            ("docs/r.json", "measured.s"),
            ("docs/page.md", "Another heading"),
            ("tools/verify.py", "main"),
        )
    ),
]
