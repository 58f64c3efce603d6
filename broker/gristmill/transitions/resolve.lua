-- resolve: the next slice of the dependents of a finished task.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed
-- @include accept
-- @include settle
local message, word = decode()
if not message then return word end
if not is_id(message.task) then return refuse_entry('expected task') end
if not accept() then return 'duplicate' end
if is_terminal(redis.call('HGET', key_task(message.task), 'state')) then downstream[1] = message.task end
settle()
return 'applied'
