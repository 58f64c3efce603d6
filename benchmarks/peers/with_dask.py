"""dask.distributed."""

from __future__ import annotations

import os
from typing import Any

from system import WORKERS, System, free_port, program, wait_for_port
from tasks import ALL


class Dask(System):
    requires = ("dask[distributed]==2026.8.0",)
    settings = "one thread a worker, no dashboard, pure=False; nothing is kept on disk"
    has_graphs = True
    bulk_call = "client.gather(client.map(f, items))"

    def start(self) -> None:
        from distributed import Client

        port = free_port()
        loopback = ("--host", "127.0.0.1", "--no-dashboard")
        self.run(program("dask"), "scheduler", "--port", str(port), *loopback)
        wait_for_port(port)
        self.run(
            program("dask"), "worker", f"tcp://127.0.0.1:{port}", "--nworkers", str(WORKERS), "--nthreads", "1",
            "--local-directory", os.environ["PEERS_DIRECTORY"], *loopback,
        )  # fmt: skip
        self._client = Client(f"tcp://127.0.0.1:{port}", set_as_default=False)
        self._client.wait_for_workers(WORKERS, timeout=60)

    def submit(self, name: str, argument: Any) -> Any:
        return self._client.submit(ALL[name], argument, pure=False)

    def results(self, handles: list[Any]) -> list[Any]:
        if len(handles) == 1:
            return [handles[0].result(timeout=300)]
        return list(self._client.gather(handles))

    def bulk(self, name: str, arguments: list[Any]) -> list[Any]:
        return list(self._client.gather(self._client.map(ALL[name], arguments, pure=False)))

    def graph(self, graph: dict[str, tuple[Any, ...]], keys: list[str]) -> list[Any]:
        return list(self._client.get(graph, keys))

    def close(self) -> None:
        self._client.close(timeout=2)


SYSTEM = Dask()
