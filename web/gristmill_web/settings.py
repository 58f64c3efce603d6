"""What the page may be told beyond what every program may be told."""

from __future__ import annotations

import ipaddress
import re

from pydantic import Field, field_validator

from gristmill.errors import SettingError
from gristmill.settings import WebSettings

_PREFIX = re.compile(r"(/[A-Za-z0-9_.~-]+)*\Z")
_HOST = re.compile(r"\.?[A-Za-z0-9_.:\[\]-]{1,253}\Z")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class PageSettings(WebSettings):
    """What the status page may be told."""

    guarded: bool = Field(
        default=False,
        description="Listen on an address that others can reach: a proxy with a login, or a private network, "
        "stands in front of the page, which has no login of its own.",
    )
    trusted_hosts: str = Field(
        default="",
        description="Names under which browsers may ask for the page, separated by commas (.example.org means all "
        "below it); localhost, this machine's name and the listening address always may.",
    )
    prefix: str = Field(default="", description="Path below which the page lives, such as /gristmill.")
    proxies: int = Field(
        default=0,
        ge=0,
        le=5,
        description="How many proxies stand in front and set X-Forwarded-For, -Proto, -Host and -Prefix; "
        "without them nobody may set these.",
    )

    @field_validator("prefix")
    @classmethod
    def _check_prefix(cls, value: str) -> str:
        value = value.rstrip("/")
        if not _PREFIX.match(value):
            raise ValueError(f"expected a path such as /gristmill; got {value!r}; begin it with a slash")
        return value

    @field_validator("trusted_hosts")
    @classmethod
    def _check_trusted_hosts(cls, value: str) -> str:
        for name in filter(None, (piece.strip() for piece in value.split(","))):
            if not _HOST.match(name):
                raise ValueError(f"expected host names separated by commas; got {name!r}; correct that one")
        return value

    def listed_hosts(self) -> list[str]:
        """The host names that the operator has named."""
        return [name for name in (piece.strip() for piece in self.trusted_hosts.split(",")) if name]


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_listening(settings: PageSettings) -> None:
    """Raise SettingError when the page would be open to others without anything that guards it."""
    if not settings.guarded and not is_loopback(settings.host):
        raise SettingError(
            f"expected a loopback address to listen on; got {settings.host!r}, and the page has no login; "
            "say --guarded when a proxy with a login or a private network stands in front of it"
        )
