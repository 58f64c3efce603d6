"""What one viewer looks at: sorting, page and filters lie in the address, so that every view is a link."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from flask import url_for

LONGEST_FILTER = 200
Row = TypeVar("Row")


@dataclass(frozen=True)
class Part(Generic[Row]):
    """One page of a list."""

    rows: Sequence[Row]
    page: int
    pages: int
    total: int


def paged(rows: Sequence[Row], page: int, per_page: int) -> Part[Row]:
    """That page of the rows; the last one when there are fewer. Pure."""
    pages = max(1, -(-len(rows) // per_page))
    page = min(max(1, page), pages)
    return Part(rows[(page - 1) * per_page : page * per_page], page, pages, len(rows))


@dataclass(frozen=True)
class Query:
    """The arguments of one page's address. Hashable, so that readings can be shared by it.

    query = Query.of("clients", arguments, sorts=("client", "unfinished"), filters={"host": None})
    query["host"], query.sort, query.descending, query.page
    query.link(sort="unfinished")  # the same page, sorted by that
    """

    endpoint: str
    """Name of the page."""
    place: tuple[tuple[str, str], ...]
    """Parts of the path, such as a task's id."""
    page: int
    sort: str
    descending: bool
    filters: tuple[tuple[str, str], ...]
    default_sort: str

    @classmethod
    def of(
        cls,
        endpoint: str,
        arguments: Mapping[str, str],
        *,
        sorts: tuple[str, ...] = (),
        filters: Mapping[str, Collection[str] | None] | None = None,
        **place: str,
    ) -> Query:
        """From the arguments of an address: what makes no sense there counts as absent.

        The first of `sorts` is the default. `filters` names the others, each with the values allowed or None for any.
        """
        page, sort = arguments.get("page", ""), arguments.get("sort", "")
        default = sorts[0] if sorts else ""
        kept = []
        for name, allowed in (filters or {}).items():
            value = arguments.get(name, "")[:LONGEST_FILTER]
            kept.append((name, value if allowed is None or value in allowed else ""))
        return cls(
            endpoint=endpoint,
            place=tuple(place.items()),
            page=int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 1,
            sort=sort if sort in sorts else default,
            descending=arguments.get("order") == "down",
            filters=tuple(kept),
            default_sort=default,
        )

    def __getitem__(self, name: str) -> str:
        return dict(self.filters).get(name, "")

    def arguments(self, **changed: str | int) -> dict[str, str | int]:
        """The arguments of the address that shows the same with `changed`; defaults are left out."""
        values: dict[str, str | int] = {
            "page": self.page if self.page > 1 else "",
            "sort": self.sort if self.sort != self.default_sort else "",
            "order": "down" if self.descending else "",
            **dict(self.filters),
            **changed,
        }
        return {name: value for name, value in values.items() if value != ""}

    def link(self, anchor: str | None = None, **changed: str | int) -> str:
        """Address of the page that shows the same with `changed`."""
        return self.address("whole", anchor, **changed)

    def address(self, view: str, anchor: str | None = None, **changed: str | int) -> str:
        """The same for `fragment`, what is polled, and `data`, the JSON."""
        arguments: dict[str, Any] = {**dict(self.place), **self.arguments(**changed)}
        return url_for(f"{self.endpoint}.{view}", _anchor=anchor, **arguments)
