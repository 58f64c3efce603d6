-- return: a worker gives back tasks that it held and has not started, or has stopped in order to leave.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed
-- @include accept
-- @include settle
-- @include give_back
local message, word = decode()
if not message then return word end
if not is_id(message.worker) or type(message.tasks) ~= 'table' or #message.tasks > 1000 then return refuse_entry('expected worker and tasks') end
if not accept() then return 'duplicate' end
count('requests:returned', 1)
local worker_id = message.worker
local function apply(id, attempt)
  local record = record_assigned(id, worker_id, attempt)
  if not record then
    count('stale:returned', 1)
    return
  end
  local to = transition(record.state, 'TaskReturned')
  if not to then return end
  give_back(worker_id, id, record, to, 'TaskReturned')
end
for _, pair in ipairs(message.tasks) do
  if type(pair) == 'table' and is_id(pair[1]) and type(pair[2]) == 'number' then
    apply(pair[1], pair[2])
  else
    quarantine('expected a task and an attempt', pair)
  end
end
settle()
return 'applied'
