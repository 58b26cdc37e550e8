"""The built site in a browser: every page, narrow and wide, light and dark.

Navigation and search are used as a reader uses them. A page may log no error, miss no
file, be wider than its window at no width, and show no text that is hard to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytestmark = pytest.mark.browser

WIDE, NARROW = 1280, 390
LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA, text of ordinary size
GENERATED = {"genindex.html", "search.html"}

# Boxes and text that stick out of the window, although no box around them scrolls.
STICKING_OUT = """() => {
  const out = [];
  const scrolls = (e) => getComputedStyle(e).overflowX !== 'visible';
  const check = (right, from, text) => {
    if (right <= innerWidth + 1) return;
    let above = from;
    while (above && above.tagName !== 'ARTICLE' && !scrolls(above))
      above = above.parentElement;
    if (above && above.tagName === 'ARTICLE')
      out.push(from.tagName + ' sticks out: ' + text.slice(0, 60));
  };
  const article = document.querySelector('article');
  for (const e of article.querySelectorAll('*'))
    check(e.getBoundingClientRect().right, e.parentElement, e.textContent);
  const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (texts.nextNode()) {
    range.selectNodeContents(texts.currentNode);
    const { right } = range.getBoundingClientRect();
    check(right, texts.currentNode.parentElement, texts.currentNode.textContent);
  }
  return out;
}"""

# Tables whose last columns one sees only after scrolling.
CUT = """() => [...document.querySelectorAll('article .table-wrapper')]
  .filter((box) => box.scrollWidth > box.clientWidth + 1)
  .map((box) => 'a table is cut: ' + box.innerText.slice(0, 60))"""

# Text of the page whose contrast with what is behind it is too small.
HARD_TO_READ = """(least) => {
  const parse = (c) => {
    const n = c.match(/[\\d.]+/g).map(Number);
    if (c.startsWith('color(')) return [n[0] * 255, n[1] * 255, n[2] * 255, n[3] ?? 1];
    return [n[0], n[1], n[2], n[3] ?? 1];
  };
  const over = (a, b) => [0, 1, 2].map((k) => a[k] * a[3] + b[k] * (1 - a[3]));
  const behind = (e) => {
    if (!e) return [255, 255, 255];
    const own = parse(getComputedStyle(e).backgroundColor);
    return own[3] === 1 ? own.slice(0, 3) : over(own, behind(e.parentElement));
  };
  const light = (c) => {
    const [r, g, b] = c.map((v) => {
      v /= 255;
      return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = new Map();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !e.checkVisibility()) continue;
    if (!e.closest('article, .sidebar-drawer, .toc-drawer')) continue;
    if (['SCRIPT', 'STYLE'].includes(e.tagName)) continue;
    const back = behind(e);
    const front = over(parse(getComputedStyle(e).color), back);
    const [a, b] = [light(front), light(back)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const key = `${e.tagName}.${e.className}`;
    if (contrast < least && !found.has(key))
      found.set(key, `${key} ${contrast.toFixed(2)} ${e.textContent.slice(0, 40)}`);
  }
  return [...found.values()];
}"""


@contextmanager
def window(browser: Any, width: int, scheme: str = "light") -> Iterator[Any]:
    """A page of that width; what it logs and misses fails the test at the end."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    page = context.new_page()
    page.set_default_timeout(20_000)
    wrong: list[str] = []
    page.on(
        "console",
        lambda said: wrong.append(said.text) if said.type == "error" else None,
    )
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "response",
        lambda got: wrong.append(f"{got.status} {got.url}") if got.status > 399 else 0,
    )
    # What was still loading when the page was left is no fault of the page.
    page.on(
        "requestfailed",
        lambda request: (
            wrong.append(request.url) if "ABORTED" not in str(request.failure) else None
        ),
    )
    yield page
    context.close()
    assert not wrong, wrong


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_page_fits_its_window_and_can_be_read(
    browser: Any, served: str, pages: list[str], width: int, scheme: str
) -> None:
    faults: list[str] = []
    with window(browser, width, scheme) as page:
        for name in pages:
            page.goto(served + name)
            faults += [f"{name}: {said}" for said in looks(page)]
    assert not faults, "\n".join(faults)


def looks(page: Any) -> list[str]:
    """What is wrong with the page at hand as one sees it."""
    more = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return [
        *([f"{more} pixels too wide"] if more > 0 else []),
        *page.evaluate(STICKING_OUT),
        *page.evaluate(CUT),
        *page.evaluate(HARD_TO_READ, LEAST_CONTRAST),
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("<p style='color: #808080; background: #888888'>pale</p>", "P. 1.1"),
        ("<p style='color: #77777780'>half transparent</p>", "P. "),
        ("<p style='width: 2000px'>wide</p>", "sticks out: wide"),
        (
            "<p style='white-space: nowrap'>" + "long " * 99 + "</p>",
            "P sticks out: long",
        ),
        (
            "<div class='table-wrapper'><table><tr><td>" + "x" * 99 + "</table></div>",
            "a table is cut: xxx",
        ),
    ],
)
def test_what_is_looked_for_is_seen(
    browser: Any, served: str, scheme: str, added: str, said: str
) -> None:
    with window(browser, NARROW, scheme) as page:
        page.goto(served + "getting-started.html")
        assert looks(page) == []
        put = "html => document.querySelector('article').insertAdjacentHTML("
        page.evaluate(put + "'beforeend', html)", added)
        assert any(said in fault for fault in looks(page)), looks(page)


@pytest.mark.parametrize("script", ["console.error('no')", "setTimeout(() => no(), 0)"])
def test_what_a_page_logs_is_seen(browser: Any, served: str, script: str) -> None:
    with pytest.raises(AssertionError, match="no"), window(browser, WIDE) as page:
        page.goto(served)
        page.evaluate(script)
        page.wait_for_timeout(100)


def test_a_file_that_is_missing_is_seen(browser: Any, served: str) -> None:
    with pytest.raises(AssertionError, match="404"), window(browser, WIDE) as page:
        page.goto(served)
        page.evaluate("fetch('no-such-file.js')")
        page.wait_for_timeout(200)


def test_light_and_dark_differ(browser: Any, served: str) -> None:
    seen = []
    for scheme in ("light", "dark"):
        with window(browser, WIDE, scheme) as page:
            page.goto(served)
            seen.append(
                page.evaluate("getComputedStyle(document.body).backgroundColor")
            )
    bright, dim = (sum(map(float, re.findall(r"[\d.]+", c)[:3])) for c in seen)
    assert bright > 700
    assert dim < 150


def test_next_leads_through_every_page(
    browser: Any, served: str, pages: list[str]
) -> None:
    visited = []
    with window(browser, WIDE) as page:
        page.goto(served + "index.html")
        while True:
            visited.append(page.url.removeprefix(served))
            after = page.locator(".related-pages a.next-page")
            if not after.count():
                break
            after.click()
            page.wait_for_load_state()
            assert page.locator("article h1").count() == 1
    assert len(visited) == len(set(visited))
    assert set(visited) == set(pages) - GENERATED


def test_the_sidebar_leads_to_every_section(browser: Any, served: str) -> None:
    with window(browser, WIDE) as page:
        page.goto(served + "index.html")
        links = page.locator(".sidebar-tree li.toctree-l1 > a")
        titles = links.all_inner_texts()
        assert len(titles) > 20
        for k, title in enumerate(titles):
            links.nth(k).click()
            page.wait_for_load_state()
            shown = page.locator("article h1").inner_text()
            assert shown.startswith(title), (title, shown)
            assert page.locator(".sidebar-tree .current-page").count() == 1


def test_a_narrow_window_has_the_menu_behind_a_button(
    browser: Any, served: str
) -> None:
    with window(browser, NARROW) as page:
        page.goto(served + "index.html")
        link = page.locator(".sidebar-tree a", has_text="Getting started").first
        box = link.bounding_box()
        assert box is None or box["x"] + box["width"] <= 0  # outside, to the left
        page.locator("label.nav-overlay-icon").first.click()
        link.click()
        page.wait_for_url("**/getting-started.html")
        assert page.locator("article h1").inner_text().startswith("Getting started")


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize(
    ("word", "leads_to"),
    [
        ("logaddexp", "api/functions.html#tenferro_ad.logaddexp"),
        ("NotUniqueError", "errors.html"),
        ("checkpoint", "api/recording.html#tenferro_ad.checkpoint"),
        ("g7-duplicate-value-signature", "contract.html"),
    ],
)
def test_a_search_finds_it_and_leads_there(
    browser: Any, served: str, width: int, word: str, leads_to: str
) -> None:
    with window(browser, width) as page:
        page.goto(served + "guides/submission.html")
        if width == NARROW:
            page.locator("label.nav-overlay-icon").first.click()
        box = page.locator("input.sidebar-search")
        box.fill(word)
        box.press("Enter")
        page.wait_for_url("**/search.html*")
        found = page.locator(f'ul.search li a[href*="{leads_to}"]').first
        found.click()  # waits until the search has found it
        page.wait_for_load_state()
        assert page.url.startswith(served + leads_to.partition("#")[0])
        anchor = leads_to.partition("#")[2]
        if anchor:
            assert page.locator(f'[id="{anchor}"]').is_visible()
        assert word.casefold() in page.locator("article").inner_text().casefold()
