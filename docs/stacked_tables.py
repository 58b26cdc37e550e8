"""A Sphinx extension: wide tables that a narrow screen can show.

Every cell below a heading carries that heading as `data-label`; on a narrow screen
`static/site.css` shows each row as a block, its cells under one another, labelled.
Tables of two columns fit as they are, unless a name in them is long.
"""

from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from sphinx.writers.html5 import HTML5Translator

FEWEST_COLUMNS = 3
LONGEST_NAME = 18


def has_long(table: nodes.Element) -> bool:
    """Whether a name is too long for half of a narrow screen."""
    names = table.findall(nodes.literal)
    return any(len(name.astext()) > LONGEST_NAME for name in names)


def label(app: Any, doctree: Any) -> None:
    """Write into each cell what stands above it."""
    for table in doctree.findall(nodes.tgroup):
        head = next(table.findall(nodes.thead), None)
        if head is None or (table["cols"] < FEWEST_COLUMNS and not has_long(table)):
            continue
        above = [cell.astext() for cell in head[0].children]
        table.parent["classes"].append("stacked")
        for row in next(table.findall(nodes.tbody)).children:
            for text, cell in zip(above, row.children, strict=True):
                cell["label"] = text


def visit(self: HTML5Translator, node: nodes.entry) -> None:
    HTML5Translator.visit_entry(self, node)
    if "label" in node:
        opened = f'<td data-label="{escape(node["label"])}"'
        self.body[-1] = self.body[-1].replace("<td", opened, 1)


def depart(self: HTML5Translator, node: nodes.entry) -> None:
    HTML5Translator.depart_entry(self, node)


def setup(app: Any) -> dict[str, Any]:
    """Enter the extension."""
    app.add_node(nodes.entry, override=True, html=(visit, depart))
    app.connect("doctree-read", label)
    return {"parallel_read_safe": True}
