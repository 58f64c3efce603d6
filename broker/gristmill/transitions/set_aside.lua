-- set_aside: an entry that no script can apply goes to the quarantine, in one step with its leaving the stream.
-- KEYS: prefix request
-- ARGV: entry body reason
-- RETURNS: applied duplicate
-- @include accept
if not accept() then return 'duplicate' end
quarantine(reason)
return 'applied'
