-- renew_client: a client is alive. One without a record is told nothing: it reads its record and sees.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed unknown
-- @include clock
-- @include accept
local message, word = decode()
if not message then return word end
local function is_figure(value) return value == nil or (type(value) == 'number' and value >= 0 and value <= 1e14) end
if not is_id(message.client) or not is_figure(message.cpu_percent) or not is_figure(message.rss_bytes) or not is_figure(message.latency_ms) then
  return refuse_entry('expected client, cpu_percent, rss_bytes and latency_ms')
end
if not accept() then return 'duplicate' end
local facts = redis.call('HMGET', key_client(message.client), 'lease_ms', 'ended')
if not facts[1] or facts[2] then return 'unknown' end
redis.call('ZADD', key_clients(), observed_ms() + tonumber(facts[1]), message.client)
local function figure(value) return string.format('%.1f', value or 0) end
redis.call('HSET', key_client(message.client), 'seen', now_ms(), 'cpu_percent', figure(message.cpu_percent), 'rss_bytes', string.format('%d', message.rss_bytes or 0), 'latency_ms', figure(message.latency_ms))
return 'applied'
