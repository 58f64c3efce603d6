"""rq, with workers that do not fork for each task."""

from __future__ import annotations

from typing import Any

from system import WORKERS, System, program
from tasks import ALL


class Rq(System):
    requires = ("rq==3.0.0",)
    settings = "SimpleWorker: no fork for each task (its default worker forks, at a fifth of the speed)"
    bulk_call = "queue.enqueue_many(jobs)"

    def start(self) -> None:
        from redis import Redis
        from rq import Queue

        port = self.run_redis()
        for _ in range(WORKERS):
            self.run(
                program("rq"),
                "worker",
                "-w",
                "rq.worker.SimpleWorker",
                "-q",
                "-u",
                f"redis://127.0.0.1:{port}",
                "default",
            )
        self._queue = Queue("default", connection=Redis(port=port))
        self._prepare = Queue.prepare_data

    def submit(self, name: str, argument: Any) -> Any:
        return self._queue.enqueue(ALL[name], argument, result_ttl=3600)

    def results(self, handles: list[Any]) -> list[Any]:
        return [_value(handle) for handle in handles]

    def bulk(self, name: str, arguments: list[Any]) -> list[Any]:
        jobs = [self._prepare(ALL[name], args=(argument,), result_ttl=3600) for argument in arguments]
        return self.results(self._queue.enqueue_many(jobs))


def _value(job: Any) -> Any:
    result = job.latest_result(timeout=300)
    if result is None or result.type != result.Type.SUCCESSFUL:
        raise RuntimeError(f"job {job.id}: {result and result.type}")
    return result.return_value


SYSTEM = Rq()
