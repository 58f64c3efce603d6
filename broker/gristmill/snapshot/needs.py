"""What a client may want to know of its cluster: how much it can do, and why tasks wait for want of a worker."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.protocol.keys import Keys
from gristmill.snapshot.reading import Reading, number, sure, text

WORKERS_COMPARED = 200
"""The capabilities of so many workers are looked at, to say which one is missing."""


def read_capacity(keys: Keys) -> Reading[int]:
    """How many tasks can execute at the same time: the processors of all workers that are ready."""
    (members,) = yield [("ZRANGE", keys.workers(), 0, -1)]
    if not sure(members):
        return 0
    replies = yield [("HGET", keys.worker(text(member)), "processors") for member in sure(members)]
    return sum(number(sure(reply)) for reply in replies)


def read_unserved(keys: Keys, lanes: Sequence[str]) -> Reading[dict[str, str]]:
    """Those of the lanes whose tasks no worker takes, each with a sentence that says why and what to do."""
    if not lanes:
        return {}
    replies = yield [("ZCARD", keys.load(lane)) for lane in lanes]
    unserved = [lane for lane, reply in zip(lanes, replies, strict=True) if not number(sure(reply))]
    if not unserved:
        return {}
    (members,) = yield [("ZREVRANGE", keys.workers(), 0, WORKERS_COMPARED - 1)]
    offered: list[set[str]] = []
    if sure(members):
        replies = yield [("HGET", keys.worker(text(member)), "capabilities") for member in sure(members)]
        offered = [{part.partition("=")[0] for part in text(sure(reply)).split(",")} for reply in replies]
    return {lane: why_unserved(lane, offered) for lane in unserved}


def why_unserved(lane: str, offered: Sequence[set[str]]) -> str:
    """Why no worker takes the tasks of a lane, given what each worker offers, and what to do about it. Pure.

    why_unserved("gpu,python3.11", [{"python3.11"}])
    # "no worker offers gpu; start one: gristmill worker --capabilities gpu"
    """
    needed = [name for name in lane.removesuffix("!").split(",") if name]
    version = next((name.removeprefix("python") for name in needed if name.startswith("python")), "")
    names = [name for name in needed if not name.startswith("python")]
    cure = "gristmill worker" + (f" --capabilities {','.join(names)}" if names else "")
    if not offered:
        return f"there is no worker; start one: {cure}"
    if any(set(needed) <= one for one in offered):
        return "the workers that could run it take nothing now: they leave, or none of their processors is ready"
    somewhere = set().union(*offered)
    if f"python{version}" not in somewhere:
        others = sorted(name.removeprefix("python") for name in somewhere if name.startswith("python"))
        have = f"the workers here have {' and '.join(others)}" if others else "no worker says which it has"
        return f"no worker has Python {version}, by which it was sent; {have}; start one with it: {cure}"
    missing = [name for name in names if name not in somewhere]
    if missing:
        return f"no worker offers {', '.join(missing)}; start one: {cure}"
    return f"no worker offers all of {', '.join(needed)}; start one: {cure}"
