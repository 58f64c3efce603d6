"""Workers that are only played, so that a thousand of them fit on one machine: registered, heard, and answering.

One scheduler and one Redis see no difference: the same requests come, the same streams are read. What is measured is
what dispatch costs them, whatever the number of workers; so each outcome travels alone, whoever sends it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import orjson

from gristmill.bench.clock import WrongValueError, cpu_seconds
from gristmill.bench.figures import difference
from gristmill.bench.tasks import noop
from gristmill.protocol import payloads
from gristmill.protocol.keys import GROUP_PROCESSORS
from gristmill.protocol.kinds import VERSION
from gristmill.store.connection import Connection, ReplyError, connect, pack

if TYPE_CHECKING:
    from gristmill import LocalCluster

TOGETHER = 50
"""So many workers are read and answered in one turn."""
LEASE_MS = 600_000


class Fleet:
    """So many workers of one cluster, played over one connection."""

    def __init__(self, cluster: LocalCluster, size: int) -> None:
        self._keys = cluster.keys
        self._connection = Connection(cluster.address, name="gristmill-bench-fleet")
        self._connection.connect()
        self._workers = [f"played|1|{number}|{number:06x}" for number in range(size)]
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        facts = {"host": "played", "pid": 1, "python": version, "release": "0", "concurrency": 1, "lease_ms": LEASE_MS}
        for worker in self._workers:
            self._post(
                "worker", worker=worker, name=worker, queue_size=1, capabilities={f"python{version}": -1}, **facts
            )
        self._await_registered()
        for worker in self._workers:
            self._post("beat", worker=worker, processors_ready=1)

    def close(self) -> None:
        """Go; the cluster ends with its workers."""
        self._connection.close()

    def answer(self, tasks: int) -> None:
        """Read and finish so many tasks, one at a time for each worker in turn."""
        connection, keys = self._connection, self._keys
        left, at = tasks, 0
        while left:
            some = [
                self._workers[(at + step) % len(self._workers)] for step in range(min(TOGETHER, len(self._workers)))
            ]
            at += len(some)
            group = ("XREADGROUP", "GROUP", GROUP_PROCESSORS, "played", "COUNT", 1, "STREAMS")
            connection.send(*(pack((*group, keys.worker_tasks(worker), ">")) for worker in some))
            answers = []
            for worker in some:
                for _, fields in (self._read() or [[b"", []]])[0][1]:
                    task, attempt, call = fields[1].split(b" ", 3)[:3]
                    number = payloads.load_call(payloads.bytes_of(call))[0][0]
                    value = payloads.text_of(payloads.dump_value(number))
                    row = [task.decode(), int(attempt), "success", value, 1, 1, 0, None]
                    answers.append((worker, row))
            for worker, row in answers[:left]:
                body = orjson.dumps({"version": VERSION, "worker": worker, "outcomes": [row]})
                connection.send(pack(("XADD", keys.results(), "*", "outcomes", body)))
            for _ in answers[:left]:
                self._read()
            left -= len(answers[:left])

    def _post(self, kind: str, **fields: Any) -> None:
        body = orjson.dumps({"version": VERSION, **fields})
        self._connection.request("XADD", self._keys.heartbeats(), "*", kind, body)

    def _await_registered(self) -> None:
        for worker in self._workers:
            stream = self._keys.worker_control(worker)
            if not self._connection.request("XREAD", "COUNT", 1, "BLOCK", 10_000, "STREAMS", stream, "0"):
                raise WrongValueError(f"expected worker {worker} to be registered within 10 s; it was not")

    def _read(self) -> Any:
        reply = self._connection.read()
        if isinstance(reply, ReplyError):
            raise reply
        return reply


def dispatch_cost(size: int, tasks: int) -> float:
    """CPU µs that the scheduler and the scripts in Redis take for a task, with so many workers registered."""
    from gristmill import Client, LocalCluster

    with LocalCluster(workers=0) as cluster, Client(cluster) as client:
        fleet = Fleet(cluster, size)
        store = connect(cluster.address)
        try:
            futures = [client.submit(noop, number) for number in range(tasks)]
            client.flush()
            scheduler = cluster.schedulers[0].pid
            commands, before = store.info("commandstats"), cpu_seconds(scheduler)
            fleet.answer(tasks)
            values = [future.result() for future in futures]
            scripts = difference(commands, store.info("commandstats"), tasks)["evalsha"].microseconds
            used = (cpu_seconds(scheduler) - before) / tasks * 1e6
        finally:
            store.close()
            fleet.close()
    if values != list(range(tasks)):
        raise WrongValueError("expected each task's own number from the played workers")
    return scripts + used
