-- cancel_task: one task of whatever state is cancelled. A task that a processor may have started is only asked for:
-- its worker confirms. Answers whether the task is known.
-- @include entries
-- @include finish
local function cancel_task(id)
  local facts = redis.call('HMGET', key_task(id), 'state', 'attempt', 'worker', 'entry', 'name', 'submitted', 'assigned', 'more', 'lane', 'request')
  local state = facts[1]
  if not state or TERMINAL[state] then return state ~= false end
  local record = { attempt = tonumber(facts[2] or '0'), worker = facts[3], name = facts[5], submitted = tonumber(facts[6] or '0'), assigned = tonumber(facts[7] or '0'), more = facts[8] }
  if state == 'canceling' then return true end
  local to = transition(state, 'TaskCancel')
  if not to then return true end
  if state == 'inactive' then
    redis.call('ZREM', key_ready(facts[9]), id)
    redis.call('ZREM', key_delayed(), id)
    finish(id, state, to, record, {})
  elseif is_unread(record.worker, facts[4]) then
    free_entry(record.worker, facts[4])
    finish(id, state, transition(to, 'CancelConfirmCanceled'), record, {})
  else
    local asked = tonumber(facts[10] or '0') + 1
    redis.call('HSET', key_task(id), 'state', to, 'request', asked)
    redis.call('XADD', key_worker_control(record.worker), '*', 'cancel', '{"version":1,"task":"' .. id .. '","attempt":' .. record.attempt .. ',"request":' .. asked .. '}')
    change(id, state, to, record.attempt, record.worker, record.name)
  end
  return true
end
