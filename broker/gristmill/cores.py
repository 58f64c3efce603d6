"""How many cores this process may use."""

from __future__ import annotations

import os

CGROUP_LIMIT = "/sys/fs/cgroup/cpu.max"


def cores() -> int:
    """Cores by CPU affinity and by the container's limit, whichever is smaller; at least 1."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        count = os.cpu_count() or 1
    try:
        with open(CGROUP_LIMIT) as file:
            quota, period = file.read().split()
        if quota != "max":
            count = min(count, -(-int(quota) // int(period)))
    except (OSError, ValueError):
        pass  # no cgroup v2, or not readable: there is no limit that we could know
    return max(1, count)
