-- renew_client: a client is alive. One without a record is told nothing: it reads its record and sees.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed unknown
-- @include clock
-- @include accept
local message, word = decode()
if not message then return word end
if not is_id(message.client) then return refuse_entry('expected client') end
if not accept() then return 'duplicate' end
local facts = redis.call('HMGET', key_client(message.client), 'lease_ms', 'ended')
if not facts[1] or facts[2] then return 'unknown' end
redis.call('ZADD', key_clients(), observed_ms() + tonumber(facts[1]), message.client)
redis.call('HSET', key_client(message.client), 'seen', now_ms())
return 'applied'
