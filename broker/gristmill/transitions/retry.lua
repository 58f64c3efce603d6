-- retry: a task that failed and waits for its next attempt runs now.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed unknown
-- @include accept
-- @include settle
local message, word = decode()
if not message then return word end
-- @include audit
if not is_order() or not is_id(message.task) then return refuse_entry('expected by and task') end
if not accept() then return 'duplicate' end
local id = message.task
if redis.call('ZREM', key_delayed(), id) == 0 then
  audit('retry', id, 'it does not wait for an attempt')
  return 'unknown'
end
audit('retry', id, 'applied')
if redis.call('EXISTS', key_task(id)) == 1 then enqueue(id) end
settle()
return 'applied'
