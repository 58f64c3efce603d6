-- promote: retries that are due go to their lanes.
-- KEYS: prefix
-- ARGV:
-- RETURNS: promoted
-- @include clock
-- @include settle
local LIMIT = 200
local now = now_ms()
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key_delayed(), '-inf', now, 'LIMIT', 0, LIMIT)) do
  redis.call('ZREM', key_delayed(), id)
  local place = redis.call('HMGET', key_task(id), 'lane', 'order', 'priority')
  if place[1] then enqueue(id, place[1], tonumber(place[2]), place[3]) end
end
settle(now)
return 'promoted'
