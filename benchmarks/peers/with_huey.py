"""huey. This file is what its consumer loads too."""

from __future__ import annotations

import os
from typing import Any

from huey import RedisHuey
from system import PORT_VARIABLE, WORKERS, System, program
from tasks import ALL


def make() -> tuple[Any, dict[str, Any]]:
    """The queue, and its tasks named like the functions."""
    made = RedisHuey("peers", host="127.0.0.1", port=int(os.environ[PORT_VARIABLE]), notify_result=True)
    return made, {name: made.task(name=name)(function) for name, function in ALL.items()}


huey, TASKS = make() if PORT_VARIABLE in os.environ else (None, {})


class Huey(System):
    requires = ("huey==3.5.4", "redis==8.1.0")
    settings = "process workers, notify_result (no polling for results)"
    bulk_call = "task.map(items).get()"

    def start(self) -> None:
        self.run_redis()
        self.run(program("huey_consumer"), "with_huey.huey", "-w", str(WORKERS), "-k", "process", "-q")
        self._huey, self._tasks = make()

    def submit(self, name: str, argument: Any) -> Any:
        return self._tasks[name](argument)

    def results(self, handles: list[Any]) -> list[Any]:
        return [handle.get(blocking=True, timeout=300) for handle in handles]

    def bulk(self, name: str, arguments: list[Any]) -> list[Any]:
        return list(self._tasks[name].map(arguments).get(blocking=True, timeout=600))


SYSTEM = Huey()
