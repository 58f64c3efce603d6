"""What the page may be told beyond what every program may be told."""

from __future__ import annotations

import ipaddress
import re

from pydantic import Field, field_validator

from gristmill.settings import WebSettings

_PREFIX = re.compile(r"(/[A-Za-z0-9_.~-]+)*\Z")
_HEADER = re.compile(r"[A-Za-z0-9-]{0,64}\Z")
_HOST = re.compile(r"\.?[A-Za-z0-9_.:\[\]-]{1,253}\Z")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class PageSettings(WebSettings):
    """What the status page may be told."""

    guarded: bool = Field(
        default=False,
        description="Listen on an address that others can reach without asking who they are: a proxy with a login, or "
        "a private network, stands in front of the page. They may look, and not act.",
    )
    password_file: str = Field(
        default="",
        description="File with accounts, lines of name:role:hash as `python -m gristmill_web.passwords NAME` prints "
        "them; those who look log in. Roles are viewer and operator.",
    )
    token_file: str = Field(
        default="", description="File with bearer tokens for programs, lines of `viewer TOKEN` or `operator TOKEN`."
    )
    user_header: str = Field(
        default="",
        description="Header in which the declared proxy (--proxies) says who asks, such as X-Forwarded-User.",
    )
    operators: str = Field(
        default="", description="With --user-header: who of them are operators, separated by commas."
    )
    actions: bool = Field(
        default=False,
        description="Let operators cancel, retry, drain, stop and pause from the page; each is written to the audit.",
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

    @field_validator("user_header")
    @classmethod
    def _check_user_header(cls, value: str) -> str:
        if not _HEADER.match(value):
            raise ValueError(f"expected the name of a header, such as X-Forwarded-User; got {value!r}; correct it")
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
