"""G6: what the documentation owes. One test for each clause, named after it."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tenferro_ad as ta
from tenferro_ad import storage
from tenferro_ad.storage import _access, _reinterpret, _retirement
from tests.scripts import script

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    page
    for page in DOCS.rglob("*.md")
    # The documentation's build writes these.
    if page.parent.name != "api" and page.name != "errors.md"
)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
CHECKER = script("check-contract-document")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def sections(page: str) -> dict[str, str]:
    """Text below each heading of a page, by heading."""
    parts = re.split(r"^#+ (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def words(text: str) -> str:
    return " ".join(text.split())


def slug(title: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def anchors(page: str) -> list[str]:
    return re.findall(r'<a id="([^"]+)"></a>', page)


@pytest.mark.clause("g1-scope")
def test_the_scope_of_g1_is_a_correctness_and_not_a_security_boundary() -> None:
    text = words(sections(read("docs/contract.md"))["G1. Span access and retirement"])
    scope = text.split('<a id="g1-scope"></a>')[1].casefold()
    for guarded in (
        "readers and writers",
        "memory valid",
        "layout arithmetic",
        "dtype",
        "providers",
        "device",
        "not a security boundary",
        "hostile",
    ):
        assert guarded in scope, guarded


@pytest.mark.clause("g6-p4-access", "conv-waits-not-copies")
def test_state_tables_equal_the_register_and_docstrings_tell_waits_from_copies() -> (
    None
):
    page = read("docs/contract.md")
    due = CHECKER.finished(tomllib.loads(read("tests/contract/clauses.toml")))
    rows = [c["id"] for c in due if c["kind"] == "state-row"]
    assert {name[:2] for name in rows} >= {"g1", "g2", "g3", "g5", "g7"}
    assert not list(CHECKER.tables(page, due))
    for module in (_access, _retirement):
        text = words(module.__doc__ or "")
        assert "synchronisation point" in text
        assert "never a copy" in text
    for call in (
        storage.prepare_read,
        storage.prepare_write,
        storage.TensorView.prepare_host,
        storage.TensorViewMut.prepare_host_mut,
    ):
        doc = inspect.getdoc(call) or ""
        assert "Cost:" in doc
        assert "wait" in doc
    for kind in (storage.RetirementRecord, storage.ProviderRetirementBinding):
        assert (inspect.getdoc(kind) or "").strip()


@pytest.mark.clause("g6-p2-safety-notes")
def test_the_safety_notes_explain_where_correctness_rests_on_an_argument() -> None:
    named = sections(read("docs/safety-notes.md"))
    for heading, word in {
        "The unsafe import boundary": "_from_allocation",
        "Direct ownership of roots and spans": "Shared",
        "Immutable aliasing": "alias",
        "Cautious disjointness": "envelope",
        "Borrows of N children": "exclusive borrow",
        "Extraction": "try_extract",
        "Retirement": "RetirementRecord",
    }.items():
        assert word in named[heading], heading
    for name in re.findall(r"`(storage/\w+\.py)`", read("docs/safety-notes.md")):
        assert (ROOT / "tenferro_ad" / name).is_file()


@pytest.mark.clause("g6-p3-semantics")
def test_a_page_explains_owners_views_and_handles() -> None:
    named = sections(read("docs/tensor-semantics.md"))
    assert {
        "Owners",
        "Views",
        "Handles",
        "From handle to owner, and back",
        "Borrowing from a handle",
        "What is kept",
        "Copies",
    } <= named.keys()
    for heading in ("Owners", "Views", "Handles", "What is kept", "Copies"):
        assert "```python" in named[heading], heading


@pytest.mark.clause("g6-p9-submission")
def test_a_guide_explains_both_ways_to_run_and_what_comes_back() -> None:
    named = sections(read("docs/guides/submission.md"))
    for heading, told in {
        "Which of the two": (
            "submit",
            "execute_scoped_read_only",
            "ScopedSubmitRejected",
        ),
        "Detached: owning inputs": ("ExecutionInputs", "CompletionUnproven"),
        "Rejected: the exact inputs come back": ("into_parts", "is wrong"),
        "Outcomes": ("RetiredFailed(cause, inputs)", "diagnostic_keys", "retired"),
        "The handle": ("detaches", "timeout", "reaper owns"),
        "Looking at outputs, and taking one": (
            "into_output",
            "never copy",
            "recovered",
        ),
        "Donation": ("donate", "written over"),
        "Attaching values that others hold": ("of_values", "not unique", "record"),
        "Scoped: borrowing inputs": (
            "ScopedReadInputs",
            "into_owned_output",
            "refuses",
        ),
        "What it costs": ("copies", "synchronisation point"),
    }.items():
        for word in told:
            assert word in words(named[heading]), (heading, word)
    assert "```python" in named["Scoped: borrowing inputs"]
    # The table of G3 on the page of the contract is the register's, row by row.
    register = tomllib.loads(read("tests/contract/clauses.toml"))["clause"]
    g3 = [c for c in register if c["id"].startswith("g3-row-")]
    assert len(g3) == 8
    assert not list(CHECKER.tables(read("docs/contract.md"), g3))
    for call in (
        ta.Runtime.submit,
        ta.Runtime.execute_scoped_read_only,
        ta.ExecutionHandle.wait,
        ta.ExecutionBundle.into_output,
        ta.ScopedExecutionBundle.into_owned_output,
    ):
        assert {"Raises:", "Cost:"} <= set(
            re.findall(r"\w+:", inspect.getdoc(call) or "")
        )


@pytest.mark.clause("g6-p6-reinterpret")
def test_representation_views_are_told_from_casts_and_the_pairs_are_listed() -> None:
    named = sections(read("docs/guides/views-and-slicing.md"))
    contrast = words(named["Representation views and numeric casts"])
    assert "keeps the bytes" in contrast
    assert "keeps the values" in contrast
    lines = [
        re.findall(r"`(\w+)`", part)
        for line in named["Supported pairs"].split("\n- ")[1:]
        for part in line.split("\n\n")[0].split(";")
    ]
    listed = {(a, b) for group in lines for a in group for b in group if a != b}
    assert listed == set(storage.scalar_pairs())
    assert "DynRank" in named["Result rank"]
    text = words(_reinterpret.__doc__ or "")
    assert "numeric cast (`astype`) keeps values" in text
    for call in (storage.TensorView.reinterpret, storage.Tensor.into_reinterpreted):
        assert "scalar_pairs" in (inspect.getdoc(call) or "")
    for public in (ta.view_as_real, ta.view_as_complex):
        assert "makes" in (inspect.getdoc(public) or "")


@pytest.mark.clause("g6-docstring-examples")
def test_no_page_shows_python_that_is_not_run() -> None:
    fence = re.compile(r"^```(\S*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
    for page in [*PAGES, ROOT / "README.md"]:
        for found in fence.finditer(page.read_text(encoding="utf-8")):
            language, text = found[1], found[2]
            # The other systems' side of the migration page runs with those systems.
            others = {"py"} if page.name == "migration.md" else set()
            known = {"python", "text", "json", "toml", "", "{toctree}"} | others
            assert language in known, (page.name, language)
            if language not in {"python", *others}:
                assert not re.search(r"^(import|from|def|with) ", text, re.MULTILINE)


@pytest.mark.clause("g6-docstring-examples")
@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name
)
def test_the_examples_of_a_page_run_in_order(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}  # a page imports what it uses
    text = page.read_text(encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        for block in BLOCK.finditer(text):
            # Errors name the line of the page.
            line = text.count("\n", 0, block.start(1))
            source = "\n" * line + block[1]
            exec(compile(source, str(page), "exec", dont_inherit=True), names)


# Pages that the build of the site writes; before it they do not exist.
GENERATED = {
    (DOCS / name).resolve()
    for name in (
        "errors.md",
        *(f"api/{page}.md" for page in script("generated_pages", DOCS).api_pages()),
    )
}


def test_the_start_page_names_every_tutorial_and_every_guide_by_what_it_is_for() -> (
    None
):
    text = FENCED.sub("", read("docs/index.md"))
    named = {(DOCS / target).resolve() for target, _ in LINK.findall(text) if target}
    for page in PAGES:
        if page.parent.name in ("tutorials", "guides"):
            assert page.resolve() in named, page.name


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name
)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target, part in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
        to = page.parent / target if target else page
        if to.resolve() in GENERATED and not part:
            continue
        assert to.exists(), target
        if part:
            text = to.read_text(encoding="utf-8")
            titles = [slug(t) for t in sections(text)]
            assert part in (*titles, *anchors(text)), part
