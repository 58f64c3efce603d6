-- confirm: a worker's answers to `cancel` and `give_back`. An answer to an earlier request is void.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed
-- @include accept
-- @include settle
-- @include give_back
local EVENTS = { canceled = 'CancelConfirmCanceled', failed = 'CancelConfirmFailed', not_found = 'CancelConfirmNotFound' }
local message, word = decode()
if not message then return word end
if not is_id(message.worker) or type(message.confirms) ~= 'table' or #message.confirms > 1000 then return refuse_entry('expected worker and confirms') end
if not accept() then return 'duplicate' end
count('requests:confirms', 1)
local worker_id = message.worker
local function apply(confirm)
  local id = confirm.task
  local record = record_assigned(id, worker_id, confirm.attempt)
  if not record or last_request(id) ~= confirm.request then
    count('stale:confirms', 1)
    return
  end
  local to = transition(record.state, EVENTS[confirm.answer])
  if not to then return end
  if to == 'running' then
    redis.call('HSET', key_task(id), 'state', to)
    change(id, record.state, to, record.attempt, worker_id, record.name)
    return
  end
  give_back(worker_id, id, record, to, EVENTS[confirm.answer])
end
for _, confirm in ipairs(message.confirms) do
  if type(confirm) == 'table' and is_id(confirm.task) and type(confirm.attempt) == 'number' and type(confirm.request) == 'number' and EVENTS[confirm.answer] then
    apply(confirm)
  else
    quarantine('expected task, attempt, request and answer', confirm)
  end
end
settle()
return 'applied'
