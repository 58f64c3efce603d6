-- set_intake: opens the intake, or closes it with the reason. A script, because a full Redis refuses SET as such;
-- here DEL is the first write, and what follows is let through.
-- KEYS: prefix
-- ARGV: state
-- RETURNS: set
redis.call('DEL', key_intake())
redis.call('SET', key_intake(), state)
return 'set'
