"""What each browser may choose for itself. It lies in a cookie, so that the server can render by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode

COOKIE = "gristmill_settings"
YEAR_SECONDS = 31_536_000

CHOICES: dict[str, tuple[str, ...]] = {
    "theme": ("system", "light", "dark"),
    "refresh": ("0", "1", "2", "5", "10", "30", "60"),
    "paused": ("0", "1"),
    "window": ("5", "10", "30"),
    "store": ("5", "10", "30"),
    "scale": ("log", "linear"),
    "colour": ("state", "function", "capability"),
    "gone": ("0", "1", "5"),
}
"""What each may be."""


@dataclass(frozen=True)
class Preferences:
    """The choices of one browser."""

    theme: Literal["system", "light", "dark"] = "system"
    refresh: int = 0
    """Seconds between polls; 0 takes what the page was started with."""
    paused: bool = False
    window: int = 5
    """Minutes that the timeline shows."""
    store: int = 5
    """Minutes that the memory and CPU charts show."""
    scale: Literal["log", "linear"] = "log"
    """Of the memory chart."""
    colour: Literal["state", "function", "capability"] = "state"
    """What the bars of the timeline are coloured by."""
    gone: int = 1
    """Minutes for which workers that have gone are still shown."""

    @classmethod
    def read(cls, values: Mapping[str, str]) -> Preferences:
        """From texts; what makes no sense counts as the default."""
        return cls().changed(values)

    @classmethod
    def of_cookie(cls, cookie: str) -> Preferences:
        """From the cookie of a request."""
        return cls.read(dict(parse_qsl(cookie[:500])))

    def changed(self, values: Mapping[str, str]) -> Preferences:
        """The same with those of `values` that make sense."""
        known: dict[str, Any] = asdict(self)
        for field in fields(self):
            value = values.get(field.name, "")
            if value in CHOICES[field.name]:
                kind = type(known[field.name])
                known[field.name] = value == "1" if kind is bool else kind(value)
        return Preferences(**known)

    @property
    def cookie(self) -> str:
        """What the cookie holds; what is the default is left out."""
        default = Preferences()
        chosen = {
            field.name: int(value) if isinstance(value := getattr(self, field.name), bool) else value
            for field in fields(self)
            if getattr(self, field.name) != getattr(default, field.name)
        }
        return urlencode(chosen)
