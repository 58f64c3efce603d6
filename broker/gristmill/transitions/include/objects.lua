-- objects: large strings with holders. The script that accepts the first mention takes the lifetime off;
-- the script that removes the last holder frees the object. An id ends in the number of its chunks.
local CHUNK_BYTES = 1048576
local function each_chunk(object, visit)
  local chunks = tonumber(string.match(object, '%-(%d+)$') or '1')
  visit(key_object(object))
  for chunk = 1, chunks - 1 do visit(key_object_chunk(object, chunk)) end
end
local function free_object(object)
  each_chunk(object, function(key) redis.call('UNLINK', key) end)
  redis.call('DEL', key_holders(object))
  redis.call('ZREM', key_objects(), object)
end
local function has_object(object)
  local whole = true
  each_chunk(object, function(key) whole = whole and redis.call('EXISTS', key) == 1 end)
  return whole
end
-- Makes the object permanent. Answers false when a part of it is gone; what is left of it then expires.
local function keep_object(object)
  if not has_object(object) then return false end
  local last
  each_chunk(object, function(key)
    redis.call('PERSIST', key)
    last = key
  end)
  redis.call('ZADD', key_objects(), (tonumber(string.match(object, '%-(%d+)$') or '1') - 1) * CHUNK_BYTES + redis.call('STRLEN', last), object)
  return true
end
local function hold_object(object, holder)
  redis.call('SADD', key_holders(object), holder)
end
local function drop_holder(object, holder)
  if redis.call('SREM', key_holders(object), holder) == 1 and redis.call('EXISTS', key_holders(object)) == 0 then free_object(object) end
end
