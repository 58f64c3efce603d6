-- heartbeat: renews a worker's lease, shows what it measured, and follows the number of its processors that are ready.
-- One that is not registered is told so: its record expired or was lost.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed unknown
-- @include clock
-- @include accept
-- @include settle
-- @include processors
local message, word = decode()
if not message then return word end
if not is_id(message.worker) or not is_whole(message.processors_ready, 0, 1e5) or not is_sound(message) then
  return refuse_entry('expected worker, processors_ready and what it says of tasks that wait')
end
if not accept() then return 'duplicate' end
local id = message.worker
local lease = redis.call('HGET', key_worker(id), 'lease_ms')
local worker = worker_of(id)
if not worker or worker.gone or not lease or redis.pcall('XPENDING', worker.tasks, 'processors').err then
  redis.call('XADD', key_worker_control(id), '*', 'unknown', '{}')
  redis.call('EXPIRE', key_worker_control(id), 60)
  return 'unknown'
end
local now = now_ms()
redis.call('ZADD', key_workers(), observed_ms() + tonumber(lease), id)
redis.call('HSET', key_worker(id), 'seen', now, 'heartbeat', body)
local processors = message.processors_ready
local joined = worker.processors == 0 and processors > 0
set_processors(worker, processors, message)
-- What executes for long has not been measured yet: its age counts as service time.
local oldest = tonumber(message.oldest_running_ms) or 0
if oldest * 1000 > QUEUE_US and worker.room > processors + 1 then set_room(worker, oldest * 1000, 10) end
dispatch_worker(worker)
if joined then balance_towards(worker) end
settle()
return 'applied'
