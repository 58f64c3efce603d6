"""Signatures: with a key set, whoever unpickles checks first that the bytes come from somebody who has the key.

Who can write to Redis could otherwise run code in workers and clients. The key lies in the environment variable
GRISTMILL_SIGNING_KEY of clients and workers, never in Redis or on a command line; schedulers and the page need none.
Several keys, separated by commas, are all accepted and the first one signs: so a key is replaced without a pause.

- Bytes that travel inside messages have their HMAC behind them: of namespace, task (of a call: and function), bytes.
- An object carries that of its namespace, name and bytes in its id: `<name>.h<signature>-<chunks>`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from gristmill.errors import SettingError, SignatureError

VARIABLE = "GRISTMILL_SIGNING_KEY"
SIGNATURE_BYTES = 16
LEAST_KEY = 16
"""Characters of a key."""
_OBJECT = re.compile(r"(.+)\.h([A-Za-z0-9_-]{22})-\d+\Z")

off = VARIABLE not in os.environ
"""Whether this process signs and checks nothing: the one thing that is looked at where tasks are short."""


class Signer:
    """Signs and checks for one namespace."""

    def __init__(self, keys: Iterable[str], namespace: str) -> None:
        self._keys = [key.encode() for key in keys]
        self._namespace = namespace.encode()

    def _signature(self, key: bytes, name: str, pieces: Iterable[Any]) -> bytes:
        found = hmac.new(key, b"%b\0%b\0" % (self._namespace, name.encode()), hashlib.sha256)
        for piece in pieces:
            found.update(piece)
        return found.digest()[:SIGNATURE_BYTES]

    def seal(self, data: bytes, name: str) -> bytes:
        """The bytes with their signature; `name` says what they belong to."""
        return data + self._signature(self._keys[0], name, (data,))

    def open(self, sealed: bytes, name: str) -> bytes:
        """The bytes that `seal` was given; raises SignatureError."""
        data, signature = sealed[:-SIGNATURE_BYTES], sealed[-SIGNATURE_BYTES:]
        if not any(hmac.compare_digest(signature, self._signature(key, name, (data,))) for key in self._keys):
            raise refusal(name)
        return data

    def stem(self, stem: str, pieces: Iterable[Any]) -> str:
        """The name of an object with the signature of its bytes in it."""
        return f"{stem}.h{_text(self._signature(self._keys[0], stem, pieces))}"

    def check_object(self, object_id: str, data: Any) -> None:
        """Raise SignatureError unless the bytes are those that the object was made of."""
        found = _OBJECT.match(object_id)
        if not found or not any(
            hmac.compare_digest(found[2], _text(self._signature(key, found[1], (data,)))) for key in self._keys
        ):
            raise refusal(object_id)


def refusal(name: str) -> SignatureError:
    """The error for bytes that are not what they should be."""
    return SignatureError(
        f"expected bytes signed with a key of {VARIABLE} for {name}; got others, which were not looked at; "
        "give clients and workers the same key, or find out who else writes to Redis"
    )


def _text(signature: bytes) -> str:
    return urlsafe_b64encode(signature).decode().rstrip("=")


def signer(namespace: str) -> Signer | None:
    """The signer of a namespace, None when no key is set; raises SettingError for a key that is none."""
    text = os.environ.get(VARIABLE, "")
    return None if off and not text else _signer(text, namespace)


@lru_cache(maxsize=64)
def _signer(text: str, namespace: str) -> Signer:
    keys = [key.strip() for key in text.split(",")]
    if not all(len(key) >= LEAST_KEY for key in keys):
        raise SettingError(
            f"expected keys of at least {LEAST_KEY} characters, separated by commas; got a shorter one (not shown); "
            f"set {VARIABLE} to the output of `openssl rand -hex 32`"
        )
    return Signer(keys, namespace)


def open_for(namespace: str, sealed: bytes, name: str) -> bytes:
    """`Signer.open`, or the bytes as they are when no key is set."""
    found = signer(namespace)
    return sealed if found is None else found.open(sealed, name)


def name_of_call(task: str, function: str) -> str:
    """What the bytes of a call belong to: nobody shall hand them to another task or function."""
    return f"{task} {function}"
