"""dramatiq, with Redis as broker and result backend. This file is what its workers load too."""

from __future__ import annotations

import os
from typing import Any

import dramatiq
from dramatiq import group
from dramatiq.brokers.redis import RedisBroker
from dramatiq.encoder import PickleEncoder
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from system import PORT_VARIABLE, WORKERS, System, program
from tasks import ALL


def actors() -> dict[str, Any]:
    """The actors, named like the functions."""
    url = f"redis://127.0.0.1:{os.environ[PORT_VARIABLE]}/0"
    dramatiq.set_encoder(PickleEncoder())
    broker = RedisBroker(url=url)
    broker.add_middleware(Results(backend=RedisBackend(url=url, encoder=PickleEncoder()), store_results=True))
    dramatiq.set_broker(broker)
    return {name: dramatiq.actor(function, actor_name=name) for name, function in ALL.items()}


ACTORS = actors() if PORT_VARIABLE in os.environ else {}


class Dramatiq(System):
    requires = ("dramatiq[redis]==2.2.1",)
    settings = "one thread a process, prefetch 100, pickle (JSON by default, which takes no bytes)"
    bulk_call = "group(messages).run().get_results()"

    def start(self) -> None:
        self.run_redis()
        self.run(
            program("dramatiq"), "with_dramatiq", "--processes", str(WORKERS), "--threads", "1",
            dramatiq_queue_prefetch="100",
        )  # fmt: skip
        self._actors = actors()

    def submit(self, name: str, argument: Any) -> Any:
        return self._actors[name].send(argument)

    def results(self, handles: list[Any]) -> list[Any]:
        return [handle.get_result(block=True, timeout=300_000) for handle in handles]

    def bulk(self, name: str, arguments: list[Any]) -> list[Any]:
        messages = [self._actors[name].message(argument) for argument in arguments]
        return list(group(messages).run().get_results(block=True, timeout=600_000))


SYSTEM = Dramatiq()
