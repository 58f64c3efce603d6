"""loky: the executor below joblib."""

from __future__ import annotations

from system import WORKERS
from with_process_pool import ProcessPool


class Loky(ProcessPool):
    requires = ("loky==3.7.0",)
    bulk_call = "map(f, items, chunksize=n/16)"

    def start(self) -> None:
        from loky import get_reusable_executor

        self._pool = get_reusable_executor(max_workers=WORKERS, timeout=600)

    def close(self) -> None:
        self._pool.shutdown(wait=True)


SYSTEM = Loky()
