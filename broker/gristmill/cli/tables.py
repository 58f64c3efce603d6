"""Tables and lines for people: rich where a terminal shows them, plain text that `grep` can read elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gristmill.logs import escape

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table as RichTable

COLOURS = {
    "inactive": "bright_black",
    "running": "blue",
    "balance_canceling": "yellow",
    "canceling": "yellow",
    "success": "green",
    "failed": "red",
    "failed_worker_died": "magenta",
    "canceled": "bright_black",
    "canceled_not_found": "bright_black",
    "live": "green",
    "draining": "yellow",
    "stale": "yellow",
    "silent": "yellow",
    "expired": "red",
    "left": "bright_black",
    "error": "red",
    "warning": "yellow",
}
"""Colours of words that name a state; the word itself always stands there."""


class Table:
    """Rows of text under headings; a heading that begins with `>` is of a column of figures."""

    def __init__(self, *headings: str) -> None:
        self.headings = [heading.removeprefix(">") for heading in headings]
        self.figures = [heading.startswith(">") for heading in headings]
        self.rows: list[list[str]] = []

    def add(self, *cells: object) -> None:
        """One row; whatever came from outside is made harmless for a terminal."""
        self.rows.append([escape(str(cell)) for cell in cells])

    def plain(self) -> str:
        """Columns side by side, two spaces apart."""
        lines = [[heading.upper() for heading in self.headings], *self.rows]
        widths = [max(len(line[at]) for line in lines) for at in range(len(self.headings))]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if figures else cell.ljust(width)
                for cell, width, figures in zip(line, widths, self.figures, strict=True)
            ).rstrip()
            for line in lines
        )

    def rich(self) -> RenderableType:
        """The same for a terminal."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
        for heading, figures in zip(self.headings, self.figures, strict=True):
            table.add_column(heading, justify="right" if figures else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
        return table


def titled(title: str) -> RichTable:
    """An empty table of a report: a title above, columns side by side, no lines."""
    from rich.table import Table as RichTable

    return RichTable(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )


def show(pieces: Sequence[str | Table]) -> None:
    """Print lines and tables to standard output."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console(highlight=False).print(renderable(pieces))
    else:
        click.echo(plain(pieces))


def plain(pieces: Sequence[str | Table]) -> str:
    """Lines and tables as text."""
    return "\n".join(piece if isinstance(piece, str) else piece.plain() for piece in pieces)


def renderable(pieces: Sequence[str | Table]) -> RenderableType:
    """Lines and tables for rich; a line that begins with a coloured word and a colon shows that word in its colour."""
    from rich.console import Group
    from rich.text import Text

    shown: list[RenderableType] = []
    for piece in pieces:
        if isinstance(piece, Table):
            shown.append(piece.rich())
            continue
        line = Text(piece)
        word = piece.partition(":")[0]
        if word in COLOURS:
            line.stylize(f"bold {COLOURS[word]}", 0, len(word))
        shown.append(line)
    return Group(*shown)
