"""What can be called on a client, or a view of it, with one function and many items."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any, Literal, cast

from gristmill.client.functions import name_of
from gristmill.client.imap import WINDOW, Imap, ImapUnordered
from gristmill.client.mapping import Mapped
from gristmill.client.parts import Chunksize, Part
from gristmill.client.progress import Progress

if TYPE_CHECKING:
    from gristmill.client.calls import Calls


class ManyCalls:
    """The maps."""

    def map(
        self,
        function: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        chunksize: int | Literal["auto"] = "auto",
        timeout: float | None = None,
        progress: bool = False,
    ) -> list[Any]:
        """`[function(*items) for items in zip(*iterables)]`, run by workers: waits, and returns the values in order.

        Short items travel together, as one task: as many as take some 5 ms ("auto"), or at most `chunksize`; with 1
        each is a task of its own, as are items with a time limit or retries. `progress` shows a bar on standard error
        (a line now and then, where that is no terminal).

        The first exception (in order) is raised; what has not run then is cancelled. So it is when an item cannot be
        serialised (the error says which), when `timeout` seconds have passed, and on Ctrl-C. The client stays usable.

            client.map(pow, [1, 2, 3], [2, 2, 2])  # [1, 4, 9]
        """
        _check_iterables("map", iterables)
        shown = Progress(name_of(function), _total(iterables)) if progress else None
        return run_all(cast("Calls", self), function, zip(*iterables, strict=False), chunksize, timeout, shown)

    def starmap(
        self,
        function: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        *,
        chunksize: int | Literal["auto"] = "auto",
        timeout: float | None = None,
        progress: bool = False,
    ) -> list[Any]:
        """`[function(*arguments) for arguments in iterable]`, run by workers; as `map` in all else.

        client.starmap(pow, [(2, 3), (3, 2)])  # [8, 9]
        """
        shown = Progress(name_of(function), _total([iterable])) if progress else None
        return run_all(cast("Calls", self), function, argument_tuples(iterable), chunksize, timeout, shown)

    def imap(
        self,
        function: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        chunksize: int | Literal["auto"] = "auto",
        window: int = WINDOW,
        timeout: float | None = None,
        progress: bool = False,
    ) -> Imap:
        """An iterator over the values in order, which reads at most `window` items ahead: it may go on for ever.

        Each value may take `timeout` seconds from when it is asked for; then TimeoutError is raised, and it may be
        asked for again. An item that failed raises its exception; `next` goes on behind it. Closing or dropping the
        iterator cancels what is on its way.

            for square in client.imap(pow, itertools.count(), itertools.repeat(2)): ...
        """
        _check_iterables("imap", iterables)
        shown = Progress(name_of(function), _total(iterables)) if progress else None
        return Imap(
            cast("Calls", self), function, zip(*iterables, strict=False),
            chunksize=chunksize, window=window, timeout=timeout, progress=shown,
        )  # fmt: skip

    def imap_unordered(
        self,
        function: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        chunksize: int | Literal["auto"] = "auto",
        window: int = WINDOW,
        timeout: float | None = None,
        progress: bool = False,
    ) -> Imap:
        """`imap`, but each value comes as soon as it is there, whatever the order of the items.

        for page in client.imap_unordered(download, addresses): ...
        """
        _check_iterables("imap_unordered", iterables)
        shown = Progress(name_of(function), _total(iterables)) if progress else None
        return ImapUnordered(
            cast("Calls", self), function, zip(*iterables, strict=False),
            chunksize=chunksize, window=window, timeout=timeout, progress=shown,
        )  # fmt: skip


def _check_iterables(name: str, iterables: tuple[Iterable[Any], ...]) -> None:
    if not iterables:
        raise TypeError(f"expected {name}(function, iterable, ...); got no iterable")


def _total(iterables: Iterable[Iterable[Any]]) -> int | None:
    """How many items there will be, when all say how long they are."""
    lengths = [len(iterable) if isinstance(iterable, Sized) else None for iterable in iterables]
    known = [length for length in lengths if length is not None]
    return min(known) if len(known) == len(lengths) else None


def run_all(
    calls: Calls,
    function: Callable[..., Any],
    items: Iterator[tuple[Any, ...]],
    chunksize: Chunksize,
    timeout: float | None,
    progress: Progress | None = None,
) -> list[Any]:
    """What `map` and `starmap` do."""
    deadline = None if timeout is None else time.monotonic() + timeout

    def left() -> float | None:
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    parts: list[Part] = []
    mapped: Mapped | None = None
    try:
        mapped = Mapped(calls, function, items, chunksize, progress=progress, deadline=deadline)
        while not mapped.failed and (sent := mapped.send()):
            parts += sent
            if left() == 0.0:
                break
        values: list[Any] = []
        for part in parts:
            values += mapped.collect(part, left)
        return values
    except BaseException:
        if mapped is not None:
            mapped.close(parts)
        raise
    finally:
        if progress is not None:
            progress.close()
        del parts, mapped  # an exception's traceback must not keep every value alive


def argument_tuples(iterable: Iterable[Iterable[Any]]) -> Iterator[tuple[Any, ...]]:
    """The items of `starmap` as tuples; raises TypeError for one that is none."""
    for at, item in enumerate(iterable):
        try:
            yield tuple(item)
        except TypeError:
            raise TypeError(
                f"expected each item to be a tuple of arguments; got {type(item).__qualname__} as item {at} "
                "(the first is 0); use map for functions of one argument"
            ) from None
