"""What may differ from task to task, checked once and sent as it is (`messages.TaskOptions`)."""

from __future__ import annotations

import difflib
import inspect
import math
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from gristmill.protocol.kinds import PRIORITY_LIMIT
from gristmill.protocol.payloads import escaped, qualified_name

LONGEST_MILLISECONDS = 100_000_000_000
"""Three years: what is longer is cut to this."""
_CAPABILITY = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
TAG_CHARACTERS = 40
MOST_TAGS = 5
"""They travel with every task, 2 KB at most with what else is said about it."""


def python_tag() -> str:
    """The capability that every task needs: the minor version of its Python, since its code may travel by value."""
    return f"python{sys.version_info[0]}.{sys.version_info[1]}"


def lane_of(capabilities: Mapping[str, int] | Iterable[str] | None) -> str:
    """The lane of tasks that need these capabilities: all names in order; raises ValueError for an odd name."""
    if isinstance(capabilities, str):
        raise TypeError(f"expected a list of capability names; got the text {capabilities!r}; write [{capabilities!r}]")
    names = {python_tag(), *(capabilities or ())}
    for name in names:
        if not isinstance(name, str) or not _CAPABILITY.match(name):
            raise ValueError(
                f"expected capability names of 1 to 64 letters, digits, '-', '_' or '.'; got {name!r}; rename it"
            )
    return ",".join(sorted(names))


def task_options(
    *,
    priority: int = 0,
    capabilities: Mapping[str, int] | Iterable[str] | None = None,
    retries: int = 0,
    retry_delay: float = 0.0,
    retry_on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
    timeout: float | None = None,
    max_deaths: int | None = None,
    keep: float | None = None,
    profiling: bool | None = None,
    stream_output: bool = False,
    name: str = "",
    tags: Iterable[str] = (),
    reserialize: bool = False,
) -> dict[str, Any] | None:
    """The options as they travel; None when nothing differs. Raises ValueError or TypeError saying what is wrong."""
    options: dict[str, Any] = {}
    run: dict[str, Any] = {}
    if _whole("priority", priority, -PRIORITY_LIMIT, PRIORITY_LIMIT):
        options["priority"] = priority
    if capabilities:
        options["lane"] = lane_of(capabilities)
    if _whole("retries", retries, 0, 1_000_000_000):
        options["retries"] = retries
    if delay := _milliseconds("retry_delay", retry_delay, least=0):
        options["retry_delay_ms"] = delay
    if max_deaths is not None:
        options["max_deaths"] = _whole("max_deaths", max_deaths, 1, 1_000_000_000)
    if keep is not None:
        options["keep_ms"] = _milliseconds("keep", keep, least=1)
    if words := _tags(tags):
        options["about"] = {"tags": words}
    if timeout is not None:
        run["timeout_ms"] = _milliseconds("timeout", timeout, least=1)
    if retry_on is not None:
        kinds = retry_on if isinstance(retry_on, tuple) else (retry_on,)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise TypeError(f"expected retry_on to be an exception class, or a tuple of them; got {kind!r}")
        run["retry_on"] = [qualified_name(kind) for kind in kinds]
    if stream_output:
        run["output"] = True
    if profiling is not None:
        run["profiling"] = bool(profiling)
    if name:
        options.setdefault("about", {})["name"] = _name(name)
    if run:
        options["run"] = run
    return options or None


def _name(name: str) -> str:
    """What people may know a task by; goes into `events` with its first row, as the tags do."""
    if not isinstance(name, str) or len(name) > TAG_CHARACTERS:
        raise ValueError(f"expected name to be a text of at most {TAG_CHARACTERS} characters; got {name!r}; shorten it")
    return escaped(name)


def check_names(options: Mapping[str, Any]) -> None:
    """Raise TypeError for an option that there is not, with the one that may have been meant."""
    known = inspect.signature(task_options).parameters
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise TypeError(f"expected an option of tasks; got {name!r}; {meant}")


def _tags(tags: Iterable[str]) -> list[str]:
    words = [tags] if isinstance(tags, str) else list(tags)
    short = all(isinstance(word, str) and 0 < len(word) <= TAG_CHARACTERS for word in words)
    if not short or len(words) > MOST_TAGS:
        raise ValueError(
            f"expected at most {MOST_TAGS} tags of 1 to {TAG_CHARACTERS} characters; got {words!r}; shorten them"
        )
    return [escaped(word) for word in words]


def _whole(name: str, value: int, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"expected {name} to be a whole number from {least} to {most}; got {value!r}")
    return value


def _milliseconds(name: str, seconds: float, least: int) -> int:
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not number or not seconds * 1000 >= least or seconds == math.inf:
        raise ValueError(
            f"expected {name} to be a finite number of seconds, at least {least / 1000:g}; got {seconds!r}; "
            "give such a number, or leave it out"
        )
    return round(min(seconds * 1000, LONGEST_MILLISECONDS))  # cut before it is rounded: the product may be infinite
