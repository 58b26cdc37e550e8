"""G6: what the pages owe about CUDA and about evidence from a machine with a card."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.scripts import ROOT, script

DOCS = ROOT / "docs"
VERIFIER = script("check-hardware-evidence")
EVIDENCE = ROOT / VERIFIER.REPORT


def sections(name: str) -> dict[str, str]:
    """Text below each heading of a page, by heading."""
    text = (DOCS / name).read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


TOPICS = {
    "Design": ("one stream", "pool", "NVRTC", "cuBLAS", "cuFFT", "cuSOLVER"),
    "Using a card": ('ta.devices("cuda")', "device=device", "doctor"),
    "Waiting and reclamation": ("status", "poisoned", "CompletionUnproven", "deadline"),
    "Copies are explicit": ("pinned", "ExplicitDuplicate", "Transfer"),
    "Interop": ("pointer", "__dlpack__", "unsafe-interop.md"),
    "What was shown, and where": ("gpu_check.sh", "hardware-evidence.json", "NVRTC"),
}


@pytest.mark.clause("g6-p7-cuda")
def test_the_cuda_page_has_what_it_owes() -> None:
    page = sections("cuda.md")
    assert list(page) == list(TOPICS)
    whole = "\n".join(page.values())
    for topic, words in TOPICS.items():
        for word in words:
            found = page[topic] if topic != "Copies are explicit" else whole
            assert word in found, (topic, word)
    assert "cuda.md" in (DOCS / "devices.md").read_text(encoding="utf-8")
    assert re.search(r"^cuda$", (DOCS / "index.md").read_text("utf-8"), re.MULTILINE)


@pytest.mark.clause("g6-p7-cuda")
def test_what_the_page_says_of_checks_is_what_there_is() -> None:
    shown = sections("cuda.md")["What was shown, and where"]
    assert "`make test-cuda-static`" in shown
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "\ntest-cuda-static:" in makefile
    assert "make test-cuda-static" in (ROOT / ".ci" / "run").read_text("utf-8")
    whole = "\n".join(sections("cuda.md").values())
    named = set(re.findall(r"`((?:scripts|tests)/[\w./]+)`", whole))
    assert "scripts/gpu_check.sh" in named
    for path in named:
        assert (ROOT / path).exists(), path


@pytest.mark.clause("g6-p11-evidence")
def test_evidence_is_stored_with_its_commit_or_said_to_be_missing() -> None:
    """A report without the commit that it measured is refused."""
    worklog = " ".join(sections("testing/worklog.md")["Hardware"].split())
    assert "hardware-evidence.json" in worklog
    assert "commit that was measured" in worklog
    if not EVIDENCE.exists():
        assert "No report of a card exists yet" in worklog
        return
    report = json.loads(EVIDENCE.read_text(encoding="utf-8"))
    assert [*VERIFIER.faults(report), *VERIFIER.provenance(report)] == []


@pytest.mark.clause("g6-p11-evidence")
@pytest.mark.parametrize("commit", [None, "", "0" * 40])
def test_evidence_without_a_commit_of_this_history_is_refused(
    commit: str | None,
) -> None:
    whole = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = list(VERIFIER.provenance({"candidate_commit": commit}))
    if commit and whole.stdout.strip() != "false":
        assert found == []  # a shallow copy cannot tell
    else:
        assert [fault.partition(":")[0] for fault in found] == ["E_COMMIT"]
