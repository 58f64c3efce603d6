-- output: lines that a task has printed go to the client that wants to see them; not when it is far behind.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed
-- @include accept
-- @include task_id
-- @include changes
local MOST_BYTES, INBOX_ENTRIES = 1048576, 5000
local message, word = decode()
if not message then return word end
if not is_task(message.task) or type(message.lines) ~= 'table' or #body > MOST_BYTES or not is_whole(message.dropped, 0, 1e12) or not is_whole(message.attempt or 0, 0, 1e14) or not is_whole(message.number or -1, -1, 1e14) then
  return refuse_entry('expected a task, lines, the number of those left out, and the attempt and the number of the notice')
end
if not accept() then return 'duplicate' end
local client = split_id(message.task)
count('requests:output', 1)
if redis.call('XLEN', key_client_inbox(client)) < INBOX_ENTRIES then
  notify(client, 'output', body)
else
  count('dropped:lines', #message.lines)
end
write_changes()
return 'applied'
