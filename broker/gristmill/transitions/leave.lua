-- leave: the worker goes of its own accord; what it had reported before counts first.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed unknown
-- @include accept
local message, word = decode()
if not message then return word end
if not is_id(message.worker) then return refuse_entry('expected worker') end
if not accept() then return 'duplicate' end
redis.call('HINCRBY', key_counts(), 'requests:leave', 1)
redis.call('ZREM', key_workers(), message.worker)
if redis.call('EXISTS', key_worker(message.worker)) == 0 then return 'unknown' end
redis.call('HSET', key_worker(message.worker), 'draining', 1)
for lane in string.gmatch(redis.call('HGET', key_worker(message.worker), 'lanes') or '', '%S+') do redis.call('ZREM', key_load(lane), message.worker) end
redis.call('XADD', key_continued(), '*', 'end_worker', '{"version":1,"worker":"' .. message.worker .. '","reason":"left"}')
return 'applied'
