"""What a controller is: the requests that it answers for, and the duties that recur."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gristmill.protocol.keys import Keys
from gristmill.protocol.kinds import Request
from gristmill.settings import SchedulerSettings
from gristmill.store.connection import Connection
from gristmill.transitions import Scripts

SLICES = 20
"""A duty is a script of at most so many slices in one go."""


@dataclass
class Replica:
    """What the duties of one scheduler replica may use. Its figures are for people; losing them loses nothing."""

    id: str
    settings: SchedulerSettings
    keys: Keys
    scripts: Scripts
    connection: Connection
    requests: dict[str, int] = field(default_factory=dict)
    """Requests applied, by kind, since the start."""
    scripts_run: int = 0
    bytes_taken: int = 0
    """Bytes of tasks applied since this replica last looked whether the intake should close."""
    lag_seconds: float = 0.0
    """How late the last duty began."""
    ending: bool = False
    """A client has ended the installation, and the workers have left: this replica ends too."""

    def run(self, duty: str, *arguments: Any) -> None:
        """Run one duty script, and again while it answers that there is more, within bounds."""
        command = self.scripts.duty(duty, *arguments)
        for _ in range(SLICES):
            self.scripts_run += 1
            if self.scripts.apply(self.connection, command) != "more":
                break


@dataclass(frozen=True)
class Duty:
    """Something that recurs. Every duty is safe when two replicas run it at once."""

    name: str
    period_seconds: float
    run: Callable[[Replica], None]
    shared: bool = True
    """Whether one replica is enough: then a lease saves the others the work."""


@dataclass(frozen=True)
class Controller:
    """One concern of the scheduler."""

    name: str
    requests: tuple[Request, ...] = ()
    duties: tuple[Duty, ...] = ()
