"""opengris-scaler 2.9.0."""

from __future__ import annotations

from typing import Any

from system import WORKERS, System, free_port, program, wait_for_port
from tasks import ALL


class OpengrisScaler(System):
    requires = ("opengris-scaler==2.9.0",)
    settings = "bare-metal manager, fixed number of workers; nothing is kept on disk"
    bulk_call = "client.map(f, items)"

    def start(self) -> None:
        from scaler import Client

        address, storage, monitor = (f"tcp://127.0.0.1:{free_port()}" for _ in range(3))
        self.run(program("scaler_object_storage_server"), storage, "-ll", "WARNING")
        wait_for_port(int(storage.rpartition(":")[2]))
        self.run(
            program("scaler_scheduler"), address, "--object-storage-address", storage, "--monitor-address", monitor
        )
        wait_for_port(int(address.rpartition(":")[2]))
        self.run(
            program("scaler_worker_manager"), "baremetal_native", "--mode", "fixed", "-mtc", str(WORKERS),
            "-wmi", "bench", "-osa", storage, address,
        )  # fmt: skip
        self._client = Client(address=address)

    def submit(self, name: str, argument: Any) -> Any:
        return self._client.submit(ALL[name], argument)

    def results(self, handles: list[Any]) -> list[Any]:
        return [handle.result(timeout=300) for handle in handles]

    def bulk(self, name: str, arguments: list[Any]) -> list[Any]:
        return list(self._client.map(ALL[name], arguments))

    def close(self) -> None:
        self._client.disconnect()


SYSTEM = OpengrisScaler()
