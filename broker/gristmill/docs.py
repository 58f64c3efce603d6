"""Writes the documentation that would drift if people wrote it: `python -m gristmill.docs [--check]`.

`docs/states.md` comes from `protocol.states`, `docs/redis-keys.md` from `protocol.keys`, `protocol.messages` and the
headers of the Lua scripts. A test compares what is on disk.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gristmill.protocol import messages
from gristmill.protocol.keys import Keys, key_kinds
from gristmill.protocol.kinds import STREAM_OF
from gristmill.protocol.states import ASSIGNED, EVENT_SENTENCES, STATE_SENTENCES, TERMINAL, TRANSITIONS, Event, State
from gristmill.transitions import SCRIPT_OF
from gristmill.transitions.loader import all_scripts

MADE = "<!-- Made by `python -m gristmill.docs`; edit the code instead. -->"


def states_page() -> str:
    """docs/states.md"""
    lines = [MADE, "", "# The states of a task", ""]
    lines += ["| state | in Redis | what it means |", "|---|---|---|"]
    for state in State:
        kind = "terminal" if state in TERMINAL else "assigned" if state in ASSIGNED else "inside a script only"
        if state is State.INACTIVE:
            kind = "waiting"
        lines.append(f"| `{state.value}` | {kind} | {STATE_SENTENCES[state]} |")
    lines += ["", "A terminal state never changes, and every task reaches exactly one.", "", "## What happens", ""]
    lines += ["| event | meaning |", "|---|---|"]
    lines += [f"| `{event.value}` | {EVENT_SENTENCES[event]} |" for event in Event]
    lines += ["", "## What follows", "", "A pair without an entry is refused: nothing changes but a counter.", ""]
    rows = [state for state in State if state not in TERMINAL]
    lines.append("| event | " + " | ".join(f"`{state.value}`" for state in rows) + " |")
    lines.append("|---" * (len(rows) + 1) + "|")
    for event in Event:
        cells = [TRANSITIONS.get((state, event)) for state in rows]
        lines.append(f"| `{event.value}` | " + " | ".join(f"`{cell.value}`" if cell else "—" for cell in cells) + " |")
    lines += ["", "```mermaid", "stateDiagram-v2", "    [*] --> inactive: submitted"]
    lines += [f"    {start.value} --> {end.value}: {event.value}" for (start, event), end in TRANSITIONS.items()]
    lines += [f"    {state.value} --> [*]" for state in State if state in TERMINAL]
    lines += ["```", ""]
    return "\n".join(lines)


def _requests() -> list[str]:
    lines = ["| kind | stream | script | what it is |", "|---|---|---|---|"]
    streams = {kind.name: kind.pattern for kind in key_kinds()}
    for kind, name in STREAM_OF.items():
        body = messages.BODIES.get(kind)
        if body is not None:
            sentence = " ".join((body.__doc__ or "").partition(": ")[2].split())
        else:
            sentence = all_scripts()[SCRIPT_OF[kind]].sentence
        lines.append(f"| `{kind.value}` | `{streams[name]}` | `{SCRIPT_OF[kind]}` | {sentence} |")
    return lines


def recipes() -> str:
    """What redis-cli shows of a running system; each line was run."""
    keys, lane, task, worker = Keys("default"), "python3.11", "CLIENT.0000042", "WORKER"
    return f"""
## Looking with redis-cli

The lines below are for the namespace `default` of a Redis on this machine's usual port; an embedded one is reached by
its socket (`redis-cli -s PATH`, the path that `gristmill up` prints). `gristmill task ID` prints them for one task.

What is going on, by state, and how much has ended:

```sh
redis-cli HGETALL '{keys.counts()}'
```

The queue: how many wait in a lane, which are next, and the lanes there are:

```sh
redis-cli HKEYS '{keys.lanes()}'
redis-cli ZCARD '{keys.ready(lane)}'
redis-cli ZRANGE '{keys.ready(lane)}' 0 9
```

Follow one task: its record, and every change among the newest:

```sh
redis-cli HGETALL '{keys.task(task)}'
redis-cli XREVRANGE '{keys.events()}' + - COUNT 1000 | grep {task}
```

Who holds it: the record's `assignment` is attempt, entry and worker; of the worker's entries, those that a processor
has read are pending, with the processor's name:

```sh
redis-cli HMGET '{keys.task(task)}' assignment
redis-cli XLEN '{keys.worker_tasks(worker)}'
redis-cli XPENDING '{keys.worker_tasks(worker)}' processors - + 10
```

The workers that are alive, and what one of them last said:

```sh
redis-cli ZRANGE '{keys.workers()}' 0 -1
redis-cli HGET '{keys.worker(worker)}' heartbeat
```

Requests that nobody has applied yet, and requests that nobody could understand:

```sh
redis-cli XLEN '{keys.submit()}'
redis-cli XLEN '{keys.results()}'
redis-cli XREVRANGE '{keys.quarantine()}' + - COUNT 3
```

Whether new tasks are taken, and if not, why:

```sh
redis-cli GET '{keys.intake()}'
```
"""


def keys_page() -> str:
    """docs/redis-keys.md"""
    lines = [
        MADE,
        "",
        "# What lies in Redis",
        "",
        f"Every key begins with `{Keys('namespace').prefix.replace('namespace', '<namespace>')}`.",
        "",
    ]
    lines += ["| key | type | what |", "|---|---|---|"]
    for kind in key_kinds():
        lines.append(f"| `{kind.pattern}` | {kind.redis_type} | {kind.sentence} |")
    lines += [
        "",
        "## Requests",
        "",
        "An entry of a request stream has one field: its name is the kind, its value the",
        "JSON body.",
    ]
    lines += ["A script applies it and takes it off the stream in one step.", "", *_requests(), ""]
    lines += ["## Scripts that no request asks for", "", "| script | what it does |", "|---|---|"]
    asked = set(SCRIPT_OF.values())
    lines += [f"| `{name}` | {script.sentence} |" for name, script in all_scripts().items() if name not in asked]
    return "\n".join(lines) + "\n" + recipes()


PAGES = {"states.md": states_page, "redis-keys.md": keys_page}


def main(folder: Path, check: bool) -> int:
    """Write the pages, or with `check` compare them; 1 when one differs."""
    stale = []
    for name, page in PAGES.items():
        path, text = folder / name, page()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if check and stale:
        print(
            f"expected docs that match the code; got other ones: {', '.join(stale)}; run `make docs`", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the generated documentation.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--folder", type=Path, default=Path("docs"), help="where the pages lie")
    options = parser.parse_args()
    sys.exit(main(options.folder, options.check))
