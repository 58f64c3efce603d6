-- suspend: which tasks of a worker wait for other tasks: they are out of its load, and it has no queue meanwhile.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed unknown
-- @include accept
-- @include settle
-- @include processors
local message, word = decode()
if not message then return word end
if not is_id(message.worker) or not is_whole(message.processors_ready, 0, 1e5) or not is_whole(message.suspended, 0, 1e5) or not is_whole(message.suspensions, 1, 1e14) or not message.waiting or not is_sound(message) then
  return refuse_entry('expected worker, processors_ready, suspended, suspensions and waiting')
end
if not accept() then return 'duplicate' end
count('requests:suspended', 1)
local worker = worker_of(message.worker)
if not worker or worker.gone then
  write_changes()
  return 'unknown'
end
local had = worker.processors
set_processors(worker, message.processors_ready, message)
dispatch_worker(worker)
if worker.processors > had then balance_towards(worker) end
settle()
return 'applied'
