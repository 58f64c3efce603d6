"""Guards whose absence nothing outside can notice, and why."""

from __future__ import annotations

_TABLE = "The table has no such pair today; a state that is added must not be ended without a name."
_WORK = "It only saves work: without it the same is found out by more commands."
_NOTHING = "It says plainly what comes out anyway: what is not there has no fields, and nothing equals nothing."
_BOUND = "It bounds how long one step takes; what comes out is the same."
_DUTY = "Without it a beat looks for work as often as the balance duty, which finds the same."

EXEMPT: dict[tuple[str, str, str], str] = {
    ("check_entries.lua", "from == '-'", "true"): _WORK,
    ("check_entries.lua", "worker.gone", "false"): _WORK,
    ("check_objects.lua", "redis.call('SCARD', key_holders(object)) <= MOST_HOLDERS", "true"): _BOUND,
    ("check_tasks.lua", "not resolving[need]", "true"): _WORK,
    ("check_tasks.lua", "to", "true"): _TABLE,
    ("check_tasks.lua", "record.more", "true"): _WORK,
    ("claim.lua", "not seen[id]", "true"): _WORK,
    ("claim.lua", "record.state == 'inactive'", "true"): _WORK,
    ("claim.lua", "record.more", "true"): _WORK,
    ("depend.lua", "#needs > 0", "true"): _WORK,
    ("depend.lua", "more[1]", "true"): _WORK,
    ("end_worker.lua", "not to", "false"): _TABLE,
    ("end_worker.lua", "not seen[found[1]]", "true"): _WORK,
    ("held.lua", "not mine", "true"): _TABLE,
    ("held.lua", "holder[at] ~= consumer", "true"): _WORK,
    ("heartbeat.lua", "worker.processors == 0", "true"): _DUTY,
    ("heartbeat.lua", "joined", "true"): _DUTY,
    ("include/accept.lua", "batch <= 0", "false"): _WORK,
    ("include/accept.lua", "groups.err", "false"): _NOTHING,
    ("include/accept.lua", "stream.err", "false"): _NOTHING,
    ("include/accept.lua", "not groups[1]", "false"): _NOTHING,
    ("include/assign.lua", "not record.more", "false"): _WORK,
    ("include/assign.lua", "record.more", "true"): _WORK,
    ("include/assign.lua", "facts[7] == nil", "true"): _WORK,
    ("include/cancel_task.lua", "not to", "false"): _TABLE,
    ("include/cancel_task.lua", "redis.call('ZREM', key_ready(lane), id) == 0", "true"): _WORK,
    ("include/dispatch.lua", "more", "true"): _WORK,
    ("include/dispatch.lua", "#worker.lanes == 1", "false"): _WORK,
    ("include/entries.lua", "removed < #list", "true"): _WORK,
    ("include/finish.lua", "not record.more", "false"): _WORK,
    ("include/finish.lua", "more[1]", "true"): _WORK,
    ("include/finish.lua", "not ended[dependent]", "true"): _WORK,
    ("include/finish.lua", "(more[6] or more[7])", "true"): _WORK,
    ("include/finish.lua", "string.find(record.entry, CLAIMED, 1, true)", "true"): _WORK,
    ("include/finish.lua", "record.state == 'inactive'", "true"): _WORK,
    ("include/load.lua", "worker.touched", "true"): _WORK,
    ("include/load.lua", "not workers.more", "false"): _WORK,
    ("include/load.lua", "(best and not (workers.free and best.outstanding >= best.processors))", "false"): _WORK,
    ("include/needs.lua", "not record.more", "false"): _WORK,
    ("include/needs.lua", "known.kept", "true"): _WORK,
    ("result.lua", "not to", "false"): _TABLE,
    ("result.lua", "worker", "true"): _WORK,
    ("result.lua", "record.more", "true"): _WORK,
    ("result.lua", "not worker.gone", "true"): "Nothing counts of a worker that is gone, so nothing was measured.",
    ("submit.lua", "not reached", "true"): _WORK,
    ("submit.lua", "greatest > last", "true"): _WORK,
    ("submit.lua", "lane.moved", "true"): _WORK,
    ("submit.lua", "lane.advanced", "true"): _WORK,
    ("submit.lua", "task.number <= greatest", "true"): _WORK,
    ("submit.lua", "task.priority ~= 0", "true"): _WORK,
    ("submit.lua", "even_load == nil", "true"): _WORK,
    ("submit.lua", "name ~= message.lane", "true"): _WORK,
    ("submit.lua", "ahead > 0", "true"): _WORK,
    ("submit.lua", "redis.call('SADD', key_client_objects(client), object) == 0", "false"): _WORK,
}
"""(file, guard, answer) to the reason."""
