"""What a program calls: the client, its futures, and what carries them.

client.py      the API: submit, gather, cancel, options
many.py        the API for many items: map, starmap, imap, imap_unordered
imap.py        values as they come
progress.py    how far a map has come
mapping.py     one function for many items: what is on its way, and what comes back
grouping.py    which items travel together
parts.py       some items and the task that carries them
probing.py     when a map waits for what its first items say
chunking.py    how many short items travel as one task (pure)
options.py     what may differ from task to task
future.py      the futures: what `concurrent.futures` promises
gate.py        their lock, and why they need none until somebody waits
serializer.py  a call becomes bytes; futures in it become dependencies
serializing.py serializers of the user's own; objects that are sent for themselves
leaves.py      large arguments: each is an object of its own
references.py  what `send_object` returns
uploading.py   large arguments are uploaded before the call that names them
functions.py   each function is serialised once, and again when it has changed
batches.py     calls become the bodies of requests (pure)
outbox.py      what waits to be sent, and what one write holds
inbox.py       what the schedulers tell: outcomes, refusals, what is missing
session.py     one client's life with Redis: its connections, who sends when, what is unfinished
courier.py     the I/O thread: its turns, and the reading of the inbox
recovery.py    how a client registers, and comes back to its record after a loss
executor.py    the client as an executor of `concurrent.futures`
asynchronous.py  the client for programs with an event loop
graph.py       graphs: tasks that are submitted together and use each other's values
daskgraph.py   Dask's graphs
nested.py      a task that waits for tasks gives its slot up
lookout.py     why tasks wait, and how much the cluster can do
notebook.py    what notebooks show
shutdown.py    a client asks for everything to end
callbacks.py   the thread that calls users' callbacks
awaiting.py    `await future`
gathering.py   the values of several futures
fetching.py    large values are fetched when somebody looks at them
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gristmill.client.client import Client
    from gristmill.client.future import Future
    from gristmill.client.nested import Waits

__all__ = ["Client", "Future", "current"]

current_serializer: Any = None
"""The serializer of the client whose task this process executes at the moment, when that has one of its own."""

current: tuple[str, int] | None = None
"""The task that this process executes at the moment, as (task id, attempt): a processor sets it around each task,
and a client made meanwhile names it as its parent."""

waits: Waits | None = None
"""What this process does while a task waits for other tasks; None outside of processors."""


def __getattr__(name: str) -> Any:
    if name == "Client":
        from gristmill.client.client import Client

        return Client
    if name == "Future":
        from gristmill.client.future import Future

        return Future
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
