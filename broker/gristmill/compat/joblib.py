"""A joblib backend, so that scikit-learn's `n_jobs` works on a cluster. Importing this module registers it.

import joblib, gristmill.compat.joblib

with joblib.parallel_backend("gristmill", client=client):
    GridSearchCV(model, grid).fit(x, y)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, register_parallel_backend

from gristmill.client.calls import Calls
from gristmill.client.client import Client
from gristmill.client.future import RUNNING, Future

NAME = "gristmill"
"""What joblib calls the backend."""


class GristmillBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """Runs joblib's batches as tasks.

    Args:
        client: the client (or a view of it) to use; without one a client is made, of `address` or as `Client()` does.
        address: what `Client` takes.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = False
    default_n_jobs = -1

    def __init__(self, *, client: Any = None, address: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._client: Calls = client if client is not None else Client(address)
        self._futures: set[Future] = set()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """As many as asked for; -1 and below are counted from the processors of the cluster."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs < 0:
            return max(1, self._client.capacity() + 1 + n_jobs)
        return n_jobs

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        """Begin a `Parallel`."""
        self.parallel = parallel
        return self.effective_n_jobs(n_jobs)

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> Future:
        """Run one batch."""
        future: Future = self._client.submit(func)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    apply_async = submit  # what older releases of joblib call

    def retrieve_result_callback(self, out: Future) -> Any:
        """The values of a batch."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what is unfinished: an exception was raised."""
        # Called with joblib's lock held, which callbacks want: it must not wait for the answers.
        self._client.cancel([future for future in list(self._futures) if future._state is RUNNING], timeout=0)

    def terminate(self) -> None:
        """End a `Parallel`."""
        self.reset_batch_stats()


register_parallel_backend(NAME, GristmillBackend)
