-- confirm: a worker's answers to `cancel` and `give_back`. An answer to an earlier request is void.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed
-- @include clock
-- @include accept
-- @include settle
local EVENTS = { canceled = 'CancelConfirmCanceled', failed = 'CancelConfirmFailed', not_found = 'CancelConfirmNotFound' }
local message, word = decode()
if not message then return word end
if not is_id(message.worker) or type(message.confirms) ~= 'table' then return refuse_entry('expected worker and confirms') end
if not accept() then return 'duplicate' end
count('requests:confirms', 1)
local worker_id = message.worker
local function apply(confirm)
  local id = confirm.task
  local facts = redis.call('HMGET', key_task(id), 'state', 'attempt', 'worker', 'entry', 'name', 'submitted', 'assigned', 'more', 'request')
  if facts[3] ~= worker_id or tonumber(facts[2]) ~= confirm.attempt or tonumber(facts[9] or '0') ~= confirm.request then
    count('stale:confirms', 1)
    return
  end
  local to = transition(facts[1], EVENTS[confirm.answer])
  if not to then return end
  if to == 'running' then
    redis.call('HSET', key_task(id), 'state', to)
    change(id, facts[1], to, confirm.attempt, worker_id, facts[5])
    return
  end
  free_entry(worker_id, facts[4])
  if to == 'inactive' then
    requeue(id, facts[1], to, confirm.attempt, facts[5])
  else
    finish(id, facts[1], to, { attempt = confirm.attempt, worker = worker_id, name = facts[5], submitted = tonumber(facts[6]), assigned = tonumber(facts[7]), more = facts[8] }, {})
  end
end
for _, confirm in ipairs(message.confirms) do
  if type(confirm) == 'table' and is_id(confirm.task) and type(confirm.attempt) == 'number' and type(confirm.request) == 'number' and EVENTS[confirm.answer] then
    apply(confirm)
  else
    quarantine('expected task, attempt, request and answer', confirm)
  end
end
write_freed()
local now = now_ms()
local worker = worker_of(worker_id)
if worker then dispatch_worker(worker, now) end
settle(now)
return 'applied'
