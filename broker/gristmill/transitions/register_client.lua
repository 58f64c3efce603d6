-- register_client: creates a client's record and inbox, and tells it so. Registering anew starts its batch numbers again.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed refused
-- @include clock
-- @include accept
-- @include changes
-- @include record
local message, word = decode()
if not message then return word end
if not is_id(message.client) or string.find(message.client, '[.|]') or not is_whole(message.registration, 1, 1e9) or not is_whole(message.lease_ms, 1, 1e10) then
  return refuse_entry('expected client, registration and lease_ms')
end
if not accept() then return 'duplicate' end
local client, key = message.client, key_client(message.client)
count('requests:client', 1)
local facts = redis.call('HMGET', key, 'registration', 'ended')
local parent = message.parent
if parent == cjson.null then parent = nil end
local owner = parent and record_of(tostring(parent))
if facts[2] or (parent and (not owner or not owner.worker or tonumber(owner.attempt) ~= message.parent_attempt)) then
  redis.call('XADD', key_client_inbox(client), '*', 'refused', cjson.encode({ reason = 'client: it has ended, or its parent task has', tasks = {} }))
  redis.call('EXPIRE', key_client_inbox(client), 60)
  write_changes()
  return 'refused'
end
local now = now_ms()
if not facts[1] or tonumber(facts[1]) < message.registration then
  local fields = { 'registration', message.registration, 'batch', 0, 'registered', now, 'lease_ms', message.lease_ms }
  if not facts[1] then
    fields[#fields + 1] = 'last'
    fields[#fields + 1] = -1
  end
  for _, name in ipairs({ 'name', 'host', 'pid', 'python', 'release' }) do
    fields[#fields + 1] = name
    fields[#fields + 1] = cut(tostring(message[name] or ''), 200)
  end
  if parent then
    fields[#fields + 1] = 'parent'
    fields[#fields + 1] = parent
    local nested = redis.call('HGET', key_task(parent), 'nested')
    redis.call('HSET', key_task(parent), 'nested', (nested and nested .. ' ' or '') .. client, 'more', 1)
  end
  redis.call('HSET', key, unpack(fields))
  redis.call('DEL', key_client_batches(client))
end
redis.call('ZADD', key_clients(), observed_ms() + message.lease_ms, client)
redis.call('XADD', key_client_inbox(client), '*', 'registered', '{"registration":' .. string.format('%d', message.registration) .. '}')
write_changes()
return 'applied'
