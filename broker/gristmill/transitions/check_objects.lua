-- check_objects: objects that nobody needs any more, although they never expire. Holders that are not there are taken
-- off; what is left without any gets a lifetime.
-- KEYS: prefix
-- ARGV: ids
-- RETURNS: checked
-- @include objects
local MOST_HOLDERS = 100
local LIFETIME_SECONDS = 86400
local function repaired(what)
  redis.call('HINCRBY', key_counts(), 'repaired:' .. what, 1)
end
local function is_call(object)
  local client, number = string.match(object, '^([%w_-]+)%.c(%d+)')
  return client and redis.call('HGET', key_task(client .. '.' .. string.format('%07d', number)), 'object') == object
end
for object in string.gmatch(ids, '%S+') do
  if redis.call('TTL', key_object(object)) == -1 and redis.call('SCARD', key_holders(object)) <= MOST_HOLDERS then
    for _, holder in ipairs(redis.call('SMEMBERS', key_holders(object))) do
      if redis.call('EXISTS', key_client(holder), key_task(holder)) == 0 then
        repaired('holder')
        redis.call('SREM', key_holders(object), holder)
      end
    end
    if redis.call('EXISTS', key_holders(object)) == 0 and not is_call(object) then
      repaired('object')
      redis.call('ZREM', key_objects(), object)
      each_chunk(object, function(key) redis.call('EXPIRE', key, LIFETIME_SECONDS) end)
    end
  end
end
return 'checked'
