"""arq: asyncio workers that poll. This file is what its workers load too."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from system import PORT_VARIABLE, WORKERS, System, program
from tasks import ALL

POLL_SECONDS = 0.005
TOGETHER = 50


def _coroutine(name: str) -> Callable[..., Any]:
    async def call(_: Any, argument: Any) -> Any:
        return ALL[name](argument)

    call.__name__ = call.__qualname__ = name
    return call


def redis_settings() -> RedisSettings:
    """Where its Redis is."""
    return RedisSettings(host="127.0.0.1", port=int(os.environ.get(PORT_VARIABLE, "6379")))


class WorkerSettings:
    """What its workers are told."""

    functions = tuple(_coroutine(name) for name in ALL)
    redis_settings = redis_settings()
    max_jobs = 20
    poll_delay = 0.01
    keep_result = 3600


class Arq(System):
    requires = ("arq==0.28.0",)
    settings = "poll delay 10 ms at the worker and 5 ms at the client (0.5 s by default), 20 jobs, 50 enqueued together"
    bulk_call = "asyncio.gather(*(pool.enqueue_job(..)))"

    def start(self) -> None:
        self.run_redis()
        for _ in range(WORKERS):
            self.run(program("arq"), "with_arq.WorkerSettings")
        self._loop = asyncio.new_event_loop()
        self._pool = self._loop.run_until_complete(create_pool(redis_settings()))

    def submit(self, name: str, argument: Any) -> Any:
        return self._loop.run_until_complete(self._pool.enqueue_job(name, argument))

    def results(self, handles: list[Any]) -> list[Any]:
        async def gather() -> list[Any]:
            return [await handle.result(timeout=600, poll_delay=POLL_SECONDS) for handle in handles]

        return self._loop.run_until_complete(gather())

    def bulk(self, name: str, arguments: list[Any]) -> list[Any]:
        async def enqueue() -> list[Any]:
            handles: list[Any] = []
            for first in range(0, len(arguments), TOGETHER):
                some = arguments[first : first + TOGETHER]
                handles += await asyncio.gather(*(self._pool.enqueue_job(name, argument) for argument in some))
            return handles

        return self.results(self._loop.run_until_complete(enqueue()))

    def close(self) -> None:
        self._loop.run_until_complete(self._pool.aclose())


SYSTEM = Arq()
