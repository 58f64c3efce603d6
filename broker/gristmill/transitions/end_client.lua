-- end_client: one slice of clearing a client that has disconnected, or whose lease or parent task has ended.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed
-- @include clock
-- @include accept
-- @include settle
-- @include cancel_task
local SLICE = 50
local KEPT_SECONDS = 600
-- So long it is known that a task of it did exist, when it left tasks whose outcome is kept.
local TOMBSTONE_SECONDS = 7 * 86400
local message, word = decode()
if not message then return word end
if not is_id(message.client) then return refuse_entry('expected client') end
if not accept() then return 'duplicate' end
local client, key = message.client, key_client(message.client)
local now = now_ms()
redis.call('ZREM', key_clients(), client)
redis.call('DEL', key_client_inbox(client))
if redis.call('EXISTS', key) == 1 then
  redis.call('HSET', key, 'ended', now)
  redis.call('EXPIRE', key, redis.call('HEXISTS', key, 'kept') == 1 and TOMBSTONE_SECONDS or KEPT_SECONDS)
end
for _ = 1, SLICE do
  local id = budget > 0 and redis.call('SPOP', key_client_tasks(client))
  if not id then break end
  cancel_task(id)
end
settle()
local more = redis.call('EXISTS', key_client_tasks(client)) == 1
if not more then
  for _, object in ipairs(redis.call('SPOP', key_client_objects(client), SLICE)) do drop_holder(object, client) end
  more = redis.call('EXISTS', key_client_objects(client)) == 1
end
if more then
  redis.call('XADD', key_continued(), '*', 'end_client', '{"version":1,"client":"' .. client .. '"}')
else
  redis.call('DEL', key_client_batches(client))
end
return 'applied'
