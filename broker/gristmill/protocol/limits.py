"""How full Redis may become: one formula for the scheduler that refuses, and for those who warn."""

from __future__ import annotations

RESERVE_SHARE = 0.15
RESERVE_BYTES = 32 << 20
"""So much of maxmemory is kept free for outcomes and cancels, the greater of the two, but never more than half:
a full Redis refuses those as well. 32 MiB is several clients' batches that are on their way when the intake closes."""
NEARLY = 0.8
"""Of what new tasks may fill: from here on people are warned."""


def intake_limit(max_bytes: int) -> float:
    """The bytes of a maxmemory that new tasks may fill; above them the intake closes."""
    return max_bytes - max(RESERVE_SHARE * max_bytes, min(RESERVE_BYTES, max_bytes / 2))
