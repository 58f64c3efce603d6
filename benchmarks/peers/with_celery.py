"""celery, with Redis as broker and backend. This file is the application of its workers too."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery as Application
from celery import group
from celery.result import ResultSet
from system import PORT_VARIABLE, WORKERS, System, program
from tasks import ALL


def application() -> Application:
    """The application; its tasks are named like the functions."""
    url = f"redis://127.0.0.1:{os.environ[PORT_VARIABLE]}/0"
    made = Application("peers", broker=url, backend=url)
    made.conf.update(
        task_serializer="pickle", result_serializer="pickle", accept_content=["json", "pickle"],
        worker_prefetch_multiplier=64, worker_send_task_events=False, task_send_sent_event=False,
        broker_connection_retry_on_startup=True,
    )  # fmt: skip
    for name, function in ALL.items():
        made.task(function, name=name)
    return made


app = application() if PORT_VARIABLE in os.environ else None


class Celery(System):
    requires = ("celery[redis]==5.7.0",)
    settings = (
        "prefork, prefetch 64, no gossip, mingle or heartbeat, pickle, acknowledged early (a kill loses tasks); "
        "no limit on Redis's pub/sub buffers, or results of 1 MB hang"
    )
    bulk_call = "group(f.s(i) for i in items)().get()"

    def start(self) -> None:
        self.run_redis("--client-output-buffer-limit", "pubsub 0 0 0")
        self.run(
            program("celery"), "-A", "with_celery", "worker", "-P", "prefork", "-c", str(WORKERS), "-l", "WARNING",
            "--without-gossip", "--without-mingle", "--without-heartbeat", C_FORCE_ROOT="1",
        )  # fmt: skip
        self._app = application()

    def submit(self, name: str, argument: Any) -> Any:
        return self._app.tasks[name].apply_async((argument,))

    def results(self, handles: list[Any]) -> list[Any]:
        return [handles[0].get(timeout=300)] if len(handles) == 1 else list(ResultSet(handles).get(timeout=600))

    def bulk(self, name: str, arguments: list[Any]) -> list[Any]:
        task = self._app.tasks[name]
        return list(group(task.s(argument) for argument in arguments).apply_async().get(timeout=600))


SYSTEM = Celery()
