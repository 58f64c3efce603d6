"""Gristmill itself, with an embedded Redis."""

from __future__ import annotations

from typing import Any

from system import WORKERS, System
from tasks import ALL


class Gristmill(System):
    settings = "append-only file, everysec"
    has_graphs = True
    bulk_call = "client.map(f, items)"

    def start(self) -> None:
        from gristmill import Client, LocalCluster

        self._cluster = LocalCluster(workers=WORKERS)
        self._client = Client(self._cluster)

    def submit(self, name: str, argument: Any) -> Any:
        return self._client.submit(ALL[name], argument)

    def results(self, handles: list[Any]) -> list[Any]:
        return [handle.result(300) for handle in handles]

    def bulk(self, name: str, arguments: list[Any]) -> list[Any]:
        return self._client.map(ALL[name], arguments)

    def graph(self, graph: dict[str, tuple[Any, ...]], keys: list[str]) -> list[Any]:
        return list(self._client.dask_get(graph, keys))

    def close(self) -> None:
        self._client.disconnect()
        self._cluster.close()


SYSTEM = Gristmill()
