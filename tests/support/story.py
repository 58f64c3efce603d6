"""What a cluster did before a test failed: read by hand, for whoever reads the failure."""

from __future__ import annotations

from gristmill import LocalCluster
from support.database import Database

EVENTS = 150
"""So many of the newest events are told."""


def tell(cluster: LocalCluster) -> str:
    """The newest events, then who is registered, what waits in the streams, and the records that are left."""
    database = Database(cluster.address)
    try:
        newest = database.run("XREVRANGE", cluster.keys.events(), "+", "-", "COUNT", EVENTS) or []
        lines = [b" ".join([entry, *fields]).decode("utf-8", "replace") for entry, fields in newest[::-1]]
        for key in database.keys(cluster.keys.prefix):
            kind = database.type(key)
            if kind == "stream":
                lines.append(f"{key}: {database.run('XLEN', key)} entries")
            elif kind == "hash":
                lines.append(f"{key}: {str(database.hash(key))[:600]}")
    finally:
        database.close()
    return "\n".join(lines)
