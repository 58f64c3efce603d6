-- sweep: advances the observed clock and ends the leases that have run out. The clock moves by at most twice the
-- period, so that after an hour without schedulers, or a frozen Redis, nobody expires at once. While Redis is full it
-- stands still: heartbeats are refused then, and whoever is alive cannot say so.
-- KEYS: prefix
-- ARGV: period_ms
-- RETURNS: swept
-- @include clock
local LIMIT = 50
-- An entry that only a newer scheduler understands may lie there for long.
local PATIENCE_MS = 60000
local now = now_ms()
local swept = tonumber(redis.call('HGET', key_clock(), 'swept') or now)
local refused = redis.pcall('HSET', key_clock(), 'swept', now)
if type(refused) == 'table' then
  -- A write that a full Redis lets through, so that it lets the other through as well.
  redis.call('HDEL', key_clock(), 'none')
  redis.call('HSET', key_clock(), 'swept', now)
  return 'swept'
end
local elapsed = math.max(0, math.min(now - swept, 2 * tonumber(period_ms)))
local observed = redis.call('HINCRBY', key_clock(), 'observed', elapsed)
-- Heartbeats that wait count first: nobody expires while old ones are unread.
local waiting = redis.call('XRANGE', key_heartbeats(), '-', '+', 'COUNT', 1)[1]
local age = waiting and now - tonumber(string.match(waiting[1], '^%d+')) or 0
if age > tonumber(period_ms) and age < PATIENCE_MS then return 'swept' end
-- What had run out at the sweep before: one late sweep advances the clock by two periods, and whoever is alive has then
-- still the time of one sweep to be heard.
local ended = observed - elapsed
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', key_workers(), '-inf', ended, 'LIMIT', 0, LIMIT)) do
  redis.call('ZREM', key_workers(), worker)
  redis.call('XADD', key_continued(), '*', 'end_worker', cjson.encode({ version = 1, worker = worker, reason = 'expired' }))
end
for _, client in ipairs(redis.call('ZRANGEBYSCORE', key_clients(), '-inf', ended, 'LIMIT', 0, LIMIT)) do
  redis.call('ZREM', key_clients(), client)
  redis.call('XADD', key_continued(), '*', 'end_client', cjson.encode({ version = 1, client = client }))
end
return 'swept'
