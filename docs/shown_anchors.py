"""A Sphinx extension: anchors of clauses that a reader sees and can copy.

Pages name an anchor by `<a id="...">`, which a browser does not show. Here it becomes a
small link to itself with the id as its text, so that the id of a clause can be read,
found by the search and passed on.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

ANCHOR = re.compile(r'<a id="([^"]+)">')


def show(app: Any, doctree: Any) -> None:
    """Put a link in the place of each anchor; its closing tag goes."""
    after_anchor = False
    for raw in list(doctree.findall(nodes.raw)):
        found = ANCHOR.fullmatch(raw.astext())
        if found:
            name = found[1]
            link = nodes.reference("", name, refuri=f"#{name}", ids=[name])
            link["classes"].append("clause")
            raw.replace_self(link)
        elif after_anchor and raw.astext() == "</a>":
            raw.parent.remove(raw)
        after_anchor = bool(found)


def setup(app: Any) -> dict[str, Any]:
    """Enter the extension."""
    app.connect("doctree-read", show)
    return {"parallel_read_safe": True}
