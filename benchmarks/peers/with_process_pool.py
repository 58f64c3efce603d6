"""concurrent.futures.ProcessPoolExecutor: no broker, nothing survives; what everybody compares with."""

from __future__ import annotations

from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

from system import WORKERS, System
from tasks import ALL


class ProcessPool(System):
    bulk_call = "map(f, items, chunksize=n/16)"

    def start(self) -> None:
        self._pool = ProcessPoolExecutor(WORKERS)

    def submit(self, name: str, argument: Any) -> Future[Any]:
        return self._pool.submit(ALL[name], argument)

    def results(self, handles: list[Any]) -> list[Any]:
        return [handle.result(300) for handle in handles]

    def bulk(self, name: str, arguments: list[Any]) -> list[Any]:
        return list(self._pool.map(ALL[name], arguments, chunksize=max(1, len(arguments) // 16)))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


SYSTEM = ProcessPool()
