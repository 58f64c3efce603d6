-- cancel_task: one task of whatever state is cancelled. A task that a processor may have started is only asked for:
-- its worker confirms. Answers whether the task is known. `reason` is JSON text for the story, or nil.
-- @include entries
-- @include finish
local function cancel_task(id, reason)
  local record = record_of(id)
  if not record then return false end
  local state = record.state
  if is_terminal(state) or state == 'canceling' then return true end
  local to = transition(state, 'TaskCancel')
  if not to then return true end
  if state == 'inactive' then
    local lane = string.match(redis.call('HGET', key_task(id), 'place'), '^%S+')
    if redis.call('ZREM', key_ready(lane), id) == 0 then redis.call('ZREM', key_ready(lane .. '!'), id) end
    redis.call('ZREM', key_delayed(), id)
    finish(id, record, to, { error = reason })
  elseif not string.find(record.entry, CLAIMED, 1, true) and is_unread(record.worker, record.entry) then
    free_entry(record.worker, record.entry)
    finish(id, record, transition(to, 'CancelConfirmCanceled'), { error = reason })
  else
    local asked = last_request(id) + 1
    redis.call('HSET', key_task(id), 'state', to, 'request', asked)
    redis.call('XADD', key_worker_control(record.worker), '*', 'cancel', '{"version":1,"task":"' .. id .. '","attempt":' .. record.attempt .. ',"request":' .. asked .. '}')
    change(id, state, to, record.attempt, record.worker, record.name, reason and ',0,0,0,' .. reason)
  end
  return true
end
