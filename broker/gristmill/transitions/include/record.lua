-- record: a task as a script sees it: nil when there is no record, or no longer after this script.
-- The fields are those that every outcome needs: each costs, in Redis and in Lua.
local ended = {}
local function record_of(id)
  if ended[id] then return nil end
  local facts = redis.call('HMGET', key_task(id), 'state', 'attempt', 'worker', 'entry', 'name', 'submitted', 'more')
  if not facts[1] then return nil end
  return { state = facts[1], attempt = facts[2] or '0', worker = facts[3] or '', entry = facts[4], name = facts[5] or '', submitted = facts[6], more = facts[7] }
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
