"""A browser and the built site, for those who ask for them by name.

`make docs-browser` builds the site and finds or installs a browser. Nothing here skips:
whoever runs these tests without either gets a failure that says what to do.
"""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "docs"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the site and logs nothing."""

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="session")
def pages() -> list[str]:
    """Every page of documentation; sources are shown by pages of their own."""
    found = [file.relative_to(SITE).as_posix() for file in SITE.rglob("*.html")]
    if not found:
        pytest.fail("There is no site in build/docs: run `make docs-browser`.")
    return sorted(name for name in found if not name.startswith("_modules/"))


@pytest.fixture(scope="session")
def served(pages: list[str]) -> Iterator[str]:
    """Address of the site."""
    handler = functools.partial(Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def executable(own: str) -> str | None:
    """The browser of the environment, Playwright's own, or that of the system."""
    named = os.environ.get("TENFERRO_BROWSER")
    if named or Path(own).exists():
        return named
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A browser without a window."""
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        kind = playwright.chromium
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        try:
            found = kind.launch(
                executable_path=executable(kind.executable_path), args=arguments
            )
        except Error as error:
            pytest.fail(f"No browser starts: run `make docs-browser`. {error}")
        yield found
        found.close()
