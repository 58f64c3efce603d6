"""The judge of a chaos run notices each law that is broken, and nothing in a history in which none is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chaos.history import Change, ClientHistory, Histories, Start, broken_laws, figures, read_client, read_journal


def good() -> Histories:
    """One client, two tasks: `b` waits for `a`; `c` is cancelled."""
    client = ClientHistory("client1", ended=True, cancelled={"c"})
    for token, needs in (("a", []), ("b", ["a"]), ("c", [])):
        client.submits[token] = {"token": token, "expect": "value", "value": 7, "needs": needs}
    client.done["a"].append({"how": "value", "value": 7, "at": 300})
    client.done["b"].append({"how": "value", "value": 7, "at": 500})
    client.done["c"].append({"how": "cancelled", "at": 400})
    histories = Histories([client])
    histories.starts["a"].append(Start(11, 100))
    histories.ends["a"].append(200)
    histories.starts["b"].append(Start(11, 350))
    histories.starts["c"].append(Start(12, 390))
    histories.changes["x.1"] = [Change(1, "inactive", 0), Change(2, "running", 1), Change(3, "success", 1)]
    histories.outcomes["x.1", 1] = 3
    return histories


def done(histories: Histories, token: str) -> dict[str, Any]:
    return histories.clients[0].done[token][0]


def failed(histories: Histories, token: str, error: str) -> None:
    done(histories, token).update(how="error", error=error, text="")


def test_a_good_history_breaks_no_law() -> None:
    assert broken_laws(good()) == []
    assert figures(good())["tasks"] == 3


def submitted_by_nobody(histories: Histories) -> None:
    histories.clients[0].done["z"].append({"how": "value", "value": 7, "at": 1})


def resolves_twice(histories: Histories) -> None:
    histories.clients[0].done["a"] *= 2


def never_resolves(histories: Histories) -> None:
    histories.clients[0].pending.append("a")


def has_no_end(histories: Histories) -> None:
    histories.clients[0].ended = False


def has_another_value(histories: Histories) -> None:
    done(histories, "a")["value"] = 8


def has_a_value_behind_a_failure(histories: Histories) -> None:
    histories.clients[0].submits["a"]["expect"] = "error"
    failed(histories, "a", "ValueError")


def fails_by_itself(histories: Histories) -> None:
    failed(histories, "a", "ValueError")


def died_alive(histories: Histories) -> None:
    failed(histories, "a", "ProcessorDiedError")


def lost_too_soon(histories: Histories) -> None:
    failed(histories, "a", "WorkerDiedError")


def fails_strangely(histories: Histories) -> None:
    failed(histories, "a", "TaskLostError")


def cancelled_by_nobody(histories: Histories) -> None:
    histories.clients[0].cancelled.clear()


def starts_before_its_dependency_ends(histories: Histories) -> None:
    histories.starts["b"][0] = Start(11, 150)


def starts_without_its_dependency(histories: Histories) -> None:
    histories.ends["a"].clear()


def goes_on_after_its_end(histories: Histories) -> None:
    histories.changes["x.1"].append(Change(4, "inactive", 1))


def takes_a_way_that_there_is_not(histories: Histories) -> None:
    histories.changes["x.1"].insert(0, Change(1, "success", 0))


def falls_back(histories: Histories) -> None:
    histories.changes["x.1"][0] = Change(1, "inactive", 2)


def runs_again_after_its_outcome(histories: Histories) -> None:
    histories.changes["x.1"][2:] = [Change(4, "inactive", 1), Change(5, "running", 2), Change(6, "success", 2)]


def starts_after_its_cancel(histories: Histories) -> None:
    histories.starts["c"].append(Start(13, 401))


def set_aside(histories: Histories) -> None:
    histories.quarantined.append("odd")


@pytest.mark.parametrize(
    ("breaks", "law"),
    [
        (submitted_by_nobody, 1),
        (resolves_twice, 1),
        (never_resolves, 1),
        (has_no_end, 1),
        (has_another_value, 2),
        (has_a_value_behind_a_failure, 2),
        (fails_by_itself, 2),
        (died_alive, 2),
        (lost_too_soon, 2),
        (fails_strangely, 2),
        (cancelled_by_nobody, 2),
        (starts_before_its_dependency_ends, 3),
        (starts_without_its_dependency, 3),
        (goes_on_after_its_end, 4),
        (takes_a_way_that_there_is_not, 4),
        (falls_back, 5),
        (runs_again_after_its_outcome, 6),
        (starts_after_its_cancel, 7),
        (set_aside, 8),
    ],
)
def test_a_broken_law_is_noticed(breaks: Any, law: int) -> None:
    histories = good()
    breaks(histories)

    assert any(sentence.startswith(f"law {law}:") for sentence in broken_laws(histories)), broken_laws(histories)


def test_what_the_faults_explain_breaks_no_law() -> None:
    histories = good()
    failed(histories, "b", "ProcessorDiedError")
    histories.killed_pids = {11}
    histories.outcomes["x.1", 1] = 5
    histories.changes["x.1"][2:] = [Change(4, "inactive", 1), Change(5, "running", 2), Change(6, "success", 2)]
    histories.clients.append(ClientHistory("client2"))
    histories.killed_clients.add("client2")

    assert broken_laws(histories) == []


def test_what_fails_while_it_is_cancelled_is_not_tried_again_and_breaks_no_law() -> None:
    histories = good()
    histories.clients[0].submits["c"]["retries"] = 1
    failed(histories, "c", "ValueError")

    assert broken_laws(histories) == []


def test_a_process_that_was_killed_before_its_task_noted_its_start_is_named_by_the_error() -> None:
    histories = good()
    done(histories, "a").update(how="error", error="ProcessorDiedError", text="killed; on host vm, pid 77")
    assert broken_laws(histories) != []
    histories.killed_pids = {77}

    assert broken_laws(histories) == []


@pytest.mark.parametrize(("after_ms", "explained"), [(500, True), (60_000, False)])
def test_the_outcome_of_a_worker_whose_lease_had_ended_counts_for_nothing(after_ms: int, explained: bool) -> None:
    histories = good()
    moved_on = Change(3 + after_ms, "inactive", 1, "WorkerDisconnect")
    histories.changes["x.1"][2:] = [moved_on, Change(70_000, "running", 2), Change(70_001, "success", 2)]

    assert (broken_laws(histories) == []) == explained


def test_a_torn_last_line_of_a_killed_client_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "client3.history"
    submit = json.dumps({"kind": "submit", "token": "a", "expect": "value", "value": 1, "needs": []})
    path.write_text(f'{submit}\n{{"kind": "do')
    (tmp_path / "journal").write_text("start a 5 100\nend a 5 200\n")
    histories = Histories([read_client(path)])
    read_journal(tmp_path / "journal", histories)

    assert histories.clients[0].name == "client3"
    assert list(histories.clients[0].submits) == ["a"]
    assert histories.starts["a"] == [Start(5, 100)]
    assert histories.ends["a"] == [200]
