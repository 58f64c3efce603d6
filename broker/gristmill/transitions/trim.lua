-- trim: keeps the newest changes of `events`. Entries hold 1 to 100 changes, so length says little: each carries the
-- running number of its last change. One beyond the newest is from before the count began anew.
-- KEYS: prefix
-- ARGV: keep
-- RETURNS: trimmed more
-- Each may be ten kilobytes of changes, and all that is read is made a Lua string.
local LIMIT = 50
local newest = tonumber(redis.call('HGET', key_counts(), 'events') or '0')
local old
local seen = 0
for _, found in ipairs(redis.call('XRANGE', key_events(), '-', '+', 'COUNT', LIMIT)) do
  local number = tonumber(found[2][2]) or 0
  if number > newest - tonumber(keep) and number <= newest then break end
  old, seen = found[1], seen + 1
end
if old then
  local ms, sequence = string.match(old, '^(%d+)-(%d+)$')
  redis.call('XTRIM', key_events(), 'MINID', '=', ms .. '-' .. string.format('%d', sequence + 1))
end
if seen == LIMIT then return 'more' end
return 'trimmed'
