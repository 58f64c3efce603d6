"""Moments in addresses: what a person types or a form sends, in milliseconds."""

from __future__ import annotations

import datetime as dt
import re

_MS = re.compile(r"[0-9]{10,15}\Z")


def moment_of(text: str) -> int:
    """`2026-11-30T10:42`, with or without seconds and zone (UTC when there is none), or milliseconds; 0 if neither."""
    text = text.strip()
    if _MS.match(text):
        return int(text)
    try:
        found = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
        if found.tzinfo is None:
            found = found.replace(tzinfo=dt.timezone.utc)
        return max(0, int(found.timestamp() * 1000))
    except (ValueError, OverflowError):
        return 0
