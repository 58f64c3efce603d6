-- order_worker: tells a worker to leave, for a person: when what executes has ended (drain), or at once (stop).
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed unknown
-- @include accept
local message, word = decode()
if not message then return word end
-- @include audit
if not is_order() or not is_id(message.worker) then return refuse_entry('expected by and worker') end
if message.order ~= 'drain' and message.order ~= 'stop' then return refuse_entry('expected the order drain or stop') end
if not accept() then return 'duplicate' end
local facts = redis.call('HMGET', key_worker(message.worker), 'concurrency', 'gone')
if not facts[1] or facts[2] then
  audit(message.order, message.worker, 'it has gone')
  return 'unknown'
end
audit(message.order, message.worker, 'applied')
redis.call('XADD', key_worker_control(message.worker), '*', message.order, '{"version":1}')
return 'applied'
