"""What a page says, read without a browser; and text that tries to be more than text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

HOSTILE = "<script>alert(1)</script><b>\"'\n\u202egnp &amp;"


class Text(HTMLParser):
    """What a person reads, and which tags and attributes make it up."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))
