"""Redis itself: what INFO says that people look for, and the length and pending entries of each stream of ours."""

from __future__ import annotations

from gristmill.protocol.keys import GROUP_SCHEDULERS, REQUEST_STREAMS, Keys, key_kinds
from gristmill.snapshot.fleet import redis_now
from gristmill.snapshot.health import info_of, redis_facts
from gristmill.snapshot.reading import Reading, number, or_else, sure
from gristmill.snapshot.records import RedisPicture, StreamFacts

LOGS = ("events", "failures", "audit", "quarantine")
"""Streams for people: nobody has to apply what is in them."""
SHOWN = {
    "Server": ("redis_version", "valkey_version", "redis_mode", "os", "uptime_in_seconds", "tcp_port", "config_file"),
    "Memory": (
        "used_memory", "used_memory_peak", "used_memory_rss", "maxmemory", "maxmemory_policy",
        "mem_fragmentation_ratio", "used_memory_lua",
    ),
    "Persistence": (
        "loading", "aof_enabled", "aof_last_write_status", "aof_last_bgrewrite_status", "aof_rewrite_in_progress",
        "aof_current_size", "aof_base_size", "aof_delayed_fsync", "rdb_last_bgsave_status", "rdb_last_save_time",
        "rdb_changes_since_last_save",
    ),
    "Replication": (
        "role", "connected_slaves", "master_link_status", "master_last_io_seconds_ago", "master_repl_offset",
    ),
    "Clients": ("connected_clients", "blocked_clients", "maxclients"),
    "Work": (
        "instantaneous_ops_per_sec", "total_commands_processed", "total_net_input_bytes", "total_net_output_bytes",
        "used_cpu_sys", "used_cpu_user", "evicted_keys", "expired_keys", "rejected_connections", "total_error_replies",
    ),
}  # fmt: skip
"""Fields of INFO, by what they are about."""


def read_server(keys: Keys) -> Reading[RedisPicture]:
    """Facts, memory, persistence and streams; only streams that are not empty are asked what is pending."""
    sentences = {kind.name: kind.sentence for kind in key_kinds()}
    names = (*REQUEST_STREAMS, *LOGS)
    time, info, *replies = yield [("TIME",), ("INFO",), *(("XLEN", getattr(keys, name)()) for name in names)]
    fields = info_of(info)
    lengths = {name: number(sure(reply)) for name, reply in zip(names, replies, strict=True)}
    pending = dict.fromkeys(REQUEST_STREAMS, 0)
    busy = [name for name in REQUEST_STREAMS if lengths[name]]
    if busy:
        replies = yield [("XPENDING", getattr(keys, name)(), GROUP_SCHEDULERS) for name in busy]
        given = {name: number(or_else(reply, [0], "NOGROUP")[0]) for name, reply in zip(busy, replies, strict=True)}
        pending.update(given)
    streams = tuple(
        StreamFacts(
            name=getattr(keys, name)()[len(keys.prefix) :],
            length=lengths[name],
            pending=pending.get(name),
            sentence=sentences[name],
        )
        for name in names
    )
    shown = {section: {name: fields[name] for name in wanted if name in fields} for section, wanted in SHOWN.items()}
    return RedisPicture(redis_now(time), redis_facts(fields), shown, streams)
