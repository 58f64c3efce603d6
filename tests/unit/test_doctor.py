"""What `gristmill doctor` makes of what a server says: the judging, without a server."""

from __future__ import annotations

import pytest

from gristmill.doctor import (
    Finding,
    check_clock,
    check_connections,
    check_dead_consumers,
    check_eviction,
    check_idle_clients,
    check_latency,
    check_memory,
    check_persistence,
    check_quarantine,
    check_role,
    check_version,
)
from gristmill.protocol.limits import intake_limit
from gristmill.snapshot.leftovers import DeadConsumer

GIB = str(1 << 30)
AOF = {"aof_enabled": "1", "aof_last_write_status": "ok", "rdb_last_bgsave_status": "ok"}


@pytest.mark.parametrize(
    ("finding", "level"),
    [
        (check_version({"redis_version": "6.2.14"}), "OK"),
        (check_version({"redis_version": "10.0"}), "OK"),
        (check_version({"redis_version": "7.2.4", "valkey_version": "8.0.1"}), "OK"),
        (check_version({"redis_version": "6.0.16"}), "FAIL"),
        (check_version({}), "FAIL"),
        (check_role({"role": "master", "cluster_enabled": "0"}), "OK"),
        (check_role({"role": "slave", "master_host": "db", "master_port": "6379"}), "FAIL"),
        (check_role({"role": "master", "cluster_enabled": "1"}), "FAIL"),
        (check_persistence(AOF, "everysec"), "OK"),
        (check_persistence(AOF, ""), "OK"),
        (check_persistence(AOF, "no"), "WARN"),
        (check_persistence({"aof_enabled": "0"}, ""), "WARN"),
        (check_persistence({**AOF, "aof_last_write_status": "err"}, "everysec"), "FAIL"),
        (check_persistence({**AOF, "rdb_last_bgsave_status": "err"}, "everysec"), "FAIL"),
        (check_eviction({"maxmemory_policy": "noeviction"}), "OK"),
        (check_eviction({}), "OK"),
        (check_eviction({"maxmemory_policy": "volatile-lru"}), "FAIL"),
        (check_memory({"used_memory": "1000", "maxmemory": GIB}), "OK"),
        (check_memory({"used_memory": str(int(0.75 * (1 << 30))), "maxmemory": GIB}), "WARN"),
        (check_memory({"used_memory": str(int(0.9 * (1 << 30))), "maxmemory": GIB}), "FAIL"),
        (check_memory({"used_memory": str(int(0.9 * (1 << 30))), "total_system_memory": GIB}), "FAIL"),
        (check_memory({"used_memory": "1000"}), "OK"),
        (check_idle_clients("0"), "OK"),
        (check_idle_clients(""), "OK"),
        (check_idle_clients("30"), "WARN"),
        (check_connections({"connected_clients": "10"}, "10000"), "OK"),
        (check_connections({"connected_clients": "9", "maxclients": "10"}, ""), "WARN"),
        (check_clock(0.2, 0.01), "OK"),
        (check_clock(-60.0, 0.01), "WARN"),
        (check_clock(60.0, 70.0), "OK"),
        (check_latency([0.1, 0.2, 900.0]), "OK"),
        (check_latency([5.0]), "WARN"),
        (check_latency([80.0]), "FAIL"),
        (check_dead_consumers(()), "OK"),
        (check_dead_consumers((DeadConsumer("s", "submit", 0),)), "OK"),
        (check_dead_consumers((DeadConsumer("s", "submit", 3),)), "WARN"),
        (check_quarantine(0, "gm:{default}:quarantine"), "OK"),
        (check_quarantine(2, "gm:{default}:quarantine"), "WARN"),
    ],
)
def test_each_check_judges_and_says_what_to_do_when_it_is_not_content(finding: Finding, level: str) -> None:
    assert finding.level == level
    assert finding.text
    assert bool(finding.remedy) == (level != "OK")


def test_a_replica_is_answered_with_the_address_of_its_primary() -> None:
    assert "db:6379" in check_role({"role": "slave", "master_host": "db", "master_port": "6379"}).remedy


def test_memory_is_shown_in_units_that_people_read() -> None:
    assert check_memory({"used_memory": "1048576", "maxmemory": GIB}).text == "1.0 MiB used, 0% of its limit of 1.0 GiB"


def test_memory_is_judged_by_what_new_tasks_may_fill() -> None:
    limit = 100 << 20
    room = int(intake_limit(limit))

    assert room == 68 << 20
    assert check_memory({"used_memory": str(room), "maxmemory": str(limit)}).level == "WARN"
    assert "refused" in check_memory({"used_memory": str(room + 1), "maxmemory": str(limit)}).text
    assert "above 68 MiB" in check_memory({"used_memory": str(60 << 20), "maxmemory": str(limit)}).remedy
