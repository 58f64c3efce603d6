-- recount: puts the number of tasks in one state right, unless anything has changed since it was counted.
-- KEYS: prefix
-- ARGV: events state number
-- RETURNS: set kept
if (redis.call('HGET', key_counts(), 'events') or '0') ~= events then return 'kept' end
redis.call('HSET', key_counts(), 'state:' .. state, number)
redis.call('HINCRBY', key_counts(), 'repaired:count', 1)
return 'set'
