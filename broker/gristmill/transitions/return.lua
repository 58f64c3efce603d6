-- return: a worker gives back tasks that it held and has not started, or has stopped in order to leave.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed
-- @include clock
-- @include accept
-- @include settle
local message, word = decode()
if not message then return word end
if not is_id(message.worker) or type(message.tasks) ~= 'table' then return refuse_entry('expected worker and tasks') end
if not accept() then return 'duplicate' end
count('requests:returned', 1)
local worker_id = message.worker
local function apply(id, attempt)
  local facts = redis.call('HMGET', key_task(id), 'state', 'attempt', 'worker', 'entry', 'name', 'submitted', 'assigned', 'more')
  if facts[3] ~= worker_id or tonumber(facts[2]) ~= attempt then
    count('stale:returned', 1)
    return
  end
  local to = transition(facts[1], 'TaskReturned')
  if not to then return end
  free_entry(worker_id, facts[4])
  if to == 'inactive' then
    requeue(id, facts[1], to, attempt, facts[5])
  else
    finish(id, facts[1], to, { attempt = attempt, worker = worker_id, name = facts[5], submitted = tonumber(facts[6]), assigned = tonumber(facts[7]), more = facts[8] }, {})
  end
end
for _, pair in ipairs(message.tasks) do
  if type(pair) == 'table' and is_id(pair[1]) and type(pair[2]) == 'number' then
    apply(pair[1], pair[2])
  else
    quarantine('expected a task and an attempt', pair)
  end
end
settle(now_ms())
return 'applied'
