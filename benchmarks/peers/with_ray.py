"""ray."""

from __future__ import annotations

import os
from typing import Any

from system import WORKERS, System
from tasks import ALL


class Ray(System):
    requires = ("ray==2.60.0",)
    settings = "no dashboard, 2 GiB object store; nothing is kept on disk"
    has_graphs = True
    bulk_call = "ray.get([f.remote(i) for i in items])"

    def start(self) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        import ray

        self._ray = ray
        ray.init(
            num_cpus=WORKERS, _node_ip_address="127.0.0.1", include_dashboard=False, log_to_driver=False,
            logging_level="ERROR", object_store_memory=2 << 30,
        )  # fmt: skip
        self._functions = {name: ray.remote(function) for name, function in ALL.items()}

    def submit(self, name: str, argument: Any) -> Any:
        return self._functions[name].remote(argument)

    def results(self, handles: list[Any]) -> list[Any]:
        return list(self._ray.get(handles, timeout=300))

    def graph(self, graph: dict[str, tuple[Any, ...]], keys: list[str]) -> list[Any]:
        made: dict[str, Any] = {}
        for key, (function, *needs) in graph.items():
            made[key] = self._functions[function.__name__].remote(*(made.get(need, need) for need in needs))
        return self.results([made[key] for key in keys])

    def close(self) -> None:
        self._ray.shutdown()


SYSTEM = Ray()
