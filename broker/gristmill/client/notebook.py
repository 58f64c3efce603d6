"""What notebooks show of a client and a future."""

from __future__ import annotations

import html
from collections.abc import Mapping

_LEFT = "style='text-align: left'"


def table(title: str, rows: Mapping[str, str]) -> str:
    """A heading and a small table, as HTML."""
    lines = "".join(
        f"<tr><th {_LEFT}>{html.escape(name)}</th><td {_LEFT}>{html.escape(value)}</td></tr>"
        for name, value in rows.items()
    )
    return f"<b>{html.escape(title)}</b><table>{lines}</table>"
