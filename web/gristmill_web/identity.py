"""Who asks, and what they may do: a password and a session, a bearer token, or the name that a trusted proxy gives."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from werkzeug.security import check_password_hash, generate_password_hash

from gristmill.errors import SettingError
from gristmill_web.settings import PageSettings, is_loopback

logger = logging.getLogger(__name__)

VIEWER, OPERATOR = "viewer", "operator"
"""Looks; also acts, where the page was started with --actions."""
ROLES = (VIEWER, OPERATOR)
NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}\Z")
SHORTEST_TOKEN = 16
TRIES, TRIES_SECONDS = 10, 60.0
"""So many wrong passwords in so long, of all who try together; then nobody may try for a while."""


@dataclass(frozen=True)
class Identity:
    """One who asks."""

    name: str
    role: str
    by_token: bool = False
    """Programs that send a token are no browsers: no page can make them ask."""

    @property
    def may_act(self) -> bool:
        return self.role == OPERATOR


@dataclass(frozen=True)
class Account:
    """One line of the password file."""

    name: str
    role: str
    password: str
    """As `generate_password_hash` makes it."""


def _lines(path: str, setting: str) -> list[tuple[int, str]]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{setting}: expected a file that can be read; got {path}: {error}; correct it") from None
    if os.stat(path).st_mode & 0o007:
        logger.warning("a file with secrets can be read by everybody", extra={"path": path})
    numbered = enumerate((line.strip() for line in text.splitlines()), start=1)
    return [(number, line) for number, line in numbered if line and not line.startswith("#")]


def read_accounts(path: str) -> dict[str, Account]:
    """The accounts of a password file: lines of `name:role:hash`."""
    accounts = {}
    for number, line in _lines(path, "--password-file"):
        name, _, rest = line.partition(":")
        role, _, password = rest.partition(":")
        if not NAME.match(name) or role not in ROLES or password.count("$") < 2:
            raise SettingError(
                f"--password-file: expected name:viewer:HASH or name:operator:HASH in line {number} of {path}; "
                "make lines with: python -m gristmill_web.passwords NAME"
            )
        accounts[name] = Account(name, role, password)
    if not accounts:
        raise SettingError(f"--password-file: expected at least one account in {path}; got none; add a line")
    return accounts


def read_tokens(path: str) -> dict[str, Identity]:
    """The tokens of a file, lines of `role token`, by their digest."""
    tokens = {}
    for number, line in _lines(path, "--token-file"):
        role, _, token = line.partition(" ")
        token = token.strip()
        if role not in ROLES or len(token) < SHORTEST_TOKEN:
            raise SettingError(
                f"--token-file: expected `viewer TOKEN` or `operator TOKEN` with at least {SHORTEST_TOKEN} characters "
                f"in line {number} of {path}; correct it"
            )
        tokens[_digest(token)] = Identity(f"token of line {number}", role, by_token=True)
    if not tokens:
        raise SettingError(f"--token-file: expected at least one token in {path}; got none; add a line")
    return tokens


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Doorkeeper:
    """Tells who asks."""

    def __init__(self, settings: PageSettings) -> None:
        self.accounts = read_accounts(settings.password_file) if settings.password_file else {}
        self._tokens = read_tokens(settings.token_file) if settings.token_file else {}
        self.user_header = settings.user_header
        self._operators = frozenset(filter(None, (name.strip() for name in settings.operators.split(","))))
        self._open = is_loopback(settings.host)
        self._checking = threading.Lock()
        """One password at a time: each takes a core for a moment."""
        self._wrong: deque[float] = deque(maxlen=TRIES)

    @property
    def asks(self) -> bool:
        """Whether those who ask must say who they are."""
        return bool(self.accounts or self._tokens or self.user_header)

    @property
    def secret(self) -> bytes:
        """What sessions are signed with: the same in every page process, another when the accounts change."""
        text = "\n".join(f"{account.name}:{account.role}:{account.password}" for account in self.accounts.values())
        return hashlib.sha256(b"sessions of the page\n" + text.encode()).digest() if text else os.urandom(32)

    def of_token(self, token: str) -> Identity | None:
        """Who has that token."""
        given, found = _digest(token), None
        for digest, identity in self._tokens.items():
            if hmac.compare_digest(digest, given):
                found = identity
        return found

    def of_session(self, name: str) -> Identity | None:
        """Who has logged in under that name, as the file says now."""
        account = self.accounts.get(name)
        return Identity(account.name, account.role) if account else None

    def of_proxy(self, name: str) -> Identity | None:
        """Whom the proxy names."""
        if not NAME.match(name):
            return None
        return Identity(name, OPERATOR if name in self._operators else VIEWER)

    def anybody(self) -> Identity | None:
        """Who nobody has to be asked: everyone on this machine, or whom something in front lets through to look."""
        if self.asks:
            return None
        return Identity("somebody on this machine" if self._open else "somebody", OPERATOR if self._open else VIEWER)

    def log_in(self, name: str, password: str) -> Identity | None:
        """The account with that password, or None. Raises TooManyTriesError when there were too many wrong ones."""
        with self._checking:
            if len(self._wrong) == TRIES and time.monotonic() - self._wrong[0] < TRIES_SECONDS:
                raise TooManyTriesError
            account = self.accounts.get(name)
            # One that is not there takes as long as one that is.
            expected = account.password if account else _NOBODY
            if check_password_hash(expected, password) and account:
                return Identity(account.name, account.role)
            self._wrong.append(time.monotonic())
            return None


class TooManyTriesError(Exception):
    """Too many wrong passwords of late."""


_NOBODY = generate_password_hash("nobody has this password", method="scrypt:32768:8:1")


def check_guarded(settings: PageSettings) -> None:
    """Raise SettingError when the page would be open to others without anything that tells who they are."""
    named = settings.password_file or settings.token_file or settings.user_header
    if settings.user_header and not settings.proxies:
        raise SettingError(
            "--user-header: expected --proxies NUMBER with it; without a declared proxy anybody could send that header"
        )
    if not is_loopback(settings.host) and not named and not settings.guarded:
        raise SettingError(
            f"expected a loopback address to listen on; got {settings.host!r}, and nothing says who may look; give "
            "--password-file, --token-file, or --user-header with --proxies; or --guarded when a proxy with a login or "
            "a private network stands in front"
        )
    if settings.actions and not named and not is_loopback(settings.host):
        raise SettingError(
            "--actions: expected --password-file, --token-file or --user-header with it, as others can reach the page: "
            "the audit says who has acted"
        )
