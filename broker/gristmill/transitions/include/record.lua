-- record: a task as a script sees it. What every outcome needs lies in few fields, because each costs, in Redis and
-- in Lua: `assignment` is `<attempt> <entry> <worker>`, `function` is `<object id> <name>`, `place` is `<lane> <order>`.
local ended = {}
-- Payloads and states of tasks that have ended in this script and whose values somebody may need.
local fresh, ended_as = {}, {}
-- What `assign` reads of tasks that this script lets go on: mostly it assigns them, too.
local let_go = {}
-- The end of the entry's id of a task that has none: one that a waiting task has claimed, to run it itself. The time
-- before it is when that was; no stream gives such an id, so that XACK and XDEL of it change nothing.
local CLAIMED = '-18446744073709551615'
local function assignment_of(attempt, at, worker)
  return attempt .. ' ' .. at .. ' ' .. worker
end
local function name_in(called)
  return string.match(called, ' (.*)$')
end
-- Nil when there is no record, or no longer after this script. `attempt` is that of the assignment, or the last one.
local function record_of(id)
  if ended[id] then return nil end
  local facts = redis.call('HMGET', key_task(id), 'state', 'assignment', 'function', 'submitted', 'more')
  if not facts[1] then return nil end
  local record = { state = facts[1], name = name_in(facts[3] or ''), submitted = facts[4], more = facts[5] }
  if facts[2] then
    record.attempt, record.entry, record.worker = string.match(facts[2], '^(%d+) (%S+) (.*)$')
  else
    record.attempt = redis.call('HGET', key_task(id), 'attempt') or '0'
  end
  return record
end
-- The number of the last request that was made to the task's worker.
local function last_request(id)
  return tonumber(redis.call('HGET', key_task(id), 'request') or 0)
end
-- The record when the task is assigned to that worker under that attempt: what names anything else is stale.
local function record_assigned(id, worker, attempt)
  local record = record_of(id)
  if record and record.worker == worker and tonumber(record.attempt) == attempt then return record end
end
