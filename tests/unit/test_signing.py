"""Signatures: nothing that was altered, moved or made without the key is taken for what it says it is."""

from __future__ import annotations

import pytest

from gristmill.errors import SettingError, SignatureError
from gristmill.protocol import signing
from gristmill.protocol.signing import Signer

NEW, OLD = "n" * 32, "o" * 32
SIGNER = Signer([NEW], "default")


def test_what_was_sealed_is_opened() -> None:
    sealed = SIGNER.seal(b"bytes", "abc.0000001")

    assert sealed != b"bytes"
    assert SIGNER.open(sealed, "abc.0000001") == b"bytes"


@pytest.mark.parametrize(
    "altered",
    [
        lambda sealed: (sealed[:-1] + bytes([sealed[-1] ^ 1]), "a.1"),
        lambda sealed: (b"B" + sealed[1:], "a.1"),
        lambda sealed: (sealed[:5], "a.1"),
        lambda sealed: (b"", "a.1"),
        lambda sealed: (sealed, "a.2"),
    ],
)
def test_what_was_altered_or_moved_is_refused(altered: object) -> None:
    data, name = altered(SIGNER.seal(b"bytes", "a.1"))  # type: ignore[operator]

    with pytest.raises(SignatureError, match=r"GRISTMILL_SIGNING_KEY for a\.[12]"):
        SIGNER.open(data, name)


def test_another_namespace_or_key_is_refused() -> None:
    sealed = SIGNER.seal(b"bytes", "a.1")
    for other in (Signer([NEW], "another"), Signer([OLD], "default")):
        with pytest.raises(SignatureError):
            other.open(sealed, "a.1")


def test_an_object_tells_by_its_id_whether_its_bytes_are_right() -> None:
    name = f"{SIGNER.stem('abc.f1', (b'by', b'tes'))}-1"

    SIGNER.check_object(name, b"bytes")
    for other, data in ((name, b"Bytes"), ("abc.f1-1", b"bytes"), (name.replace("f1", "f2"), b"bytes")):
        with pytest.raises(SignatureError):
            SIGNER.check_object(other, data)


def test_while_a_key_is_replaced_both_are_accepted_and_the_first_signs() -> None:
    both = Signer([NEW, OLD], "default")

    assert both.open(Signer([OLD], "default").seal(b"x", "a.1"), "a.1") == b"x"
    assert SIGNER.open(both.seal(b"x", "a.1"), "a.1") == b"x"


def test_a_short_key_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(signing.VARIABLE, f"{NEW},secret")

    with pytest.raises(SettingError, match="at least 16 characters") as caught:
        signing.signer("default")
    assert "secret" not in str(caught.value)


def test_without_a_key_nothing_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(signing.VARIABLE, raising=False)

    assert signing.signer("default") is None
