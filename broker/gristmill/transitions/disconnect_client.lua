-- disconnect_client: a client goes: from now on it has no say; its tasks and objects are cleared in slices.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate early newer malformed
-- @include accept
local message, word = decode()
if not message then return word end
if not is_id(message.client) then return refuse_entry('expected client') end
if not batch_applied(message.client, message.after) then return 'early' end
if not accept() then return 'duplicate' end
redis.call('HINCRBY', key_counts(), 'requests:disconnect', 1)
redis.call('XADD', key_continued(), '*', 'end_client', '{"version":1,"client":"' .. message.client .. '"}')
return 'applied'
