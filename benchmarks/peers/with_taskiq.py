"""taskiq, with a Redis stream as broker. This file is what its workers load too."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from system import PORT_VARIABLE, WORKERS, System, program
from taskiq.serializers import PickleSerializer
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker
from tasks import ALL

POLL_SECONDS = 0.005
TOGETHER = 50


def make_broker() -> Any:
    """The broker, with the functions as its tasks."""
    url = f"redis://127.0.0.1:{os.environ[PORT_VARIABLE]}/0"
    backend: Any = RedisAsyncResultBackend(redis_url=url, result_ex_time=3600, serializer=PickleSerializer())
    made = RedisStreamBroker(url=url).with_serializer(PickleSerializer()).with_result_backend(backend)
    for name, function in ALL.items():
        made.register_task(function, task_name=name)
    return made


broker = make_broker() if PORT_VARIABLE in os.environ else None


class Taskiq(System):
    requires = ("taskiq==0.13.0", "taskiq-redis==1.2.4")
    settings = "stream broker, pickle, results asked for every 5 ms (0.2 s by default), 50 sent together"
    bulk_call = "asyncio.gather(*(task.kiq(i) ..))"

    def start(self) -> None:
        self.run_redis()
        self._broker = make_broker()
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._broker.startup())
        self.run(program("taskiq"), "worker", "with_taskiq:broker", "-w", str(WORKERS), "--log-level", "WARNING")

    def submit(self, name: str, argument: Any) -> Any:
        return self._loop.run_until_complete(self._broker.find_task(name).kiq(argument))

    def results(self, handles: list[Any]) -> list[Any]:
        async def gather() -> list[Any]:
            found = [await handle.wait_result(check_interval=POLL_SECONDS, timeout=600) for handle in handles]
            for result in found:
                result.raise_for_error()
            return [result.return_value for result in found]

        return self._loop.run_until_complete(gather())

    def bulk(self, name: str, arguments: list[Any]) -> list[Any]:
        task = self._broker.find_task(name)

        async def send() -> list[Any]:
            handles: list[Any] = []
            for first in range(0, len(arguments), TOGETHER):
                handles += await asyncio.gather(
                    *(task.kiq(argument) for argument in arguments[first : first + TOGETHER])
                )
            return handles

        return self.results(self._loop.run_until_complete(send()))

    def close(self) -> None:
        self._loop.run_until_complete(self._broker.shutdown())


SYSTEM = Taskiq()
