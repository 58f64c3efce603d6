-- promote: retries that are due go to their lanes.
-- KEYS: prefix
-- ARGV:
-- RETURNS: promoted more
-- @include clock
-- @include settle
local LIMIT = 200
local now = now_ms()
local due = redis.call('ZRANGEBYSCORE', key_delayed(), '-inf', now, 'LIMIT', 0, LIMIT)
for _, id in ipairs(due) do
  redis.call('ZREM', key_delayed(), id)
  if redis.call('EXISTS', key_task(id)) == 1 then enqueue(id) end
end
settle()
if #due == LIMIT then return 'more' end
return 'promoted'
