-- needs: enters a task behind the tasks that it needs. Answers how many of them are not finished yet; or nil and one
-- that has ended without a value; or nil twice and those that are gone. In the last two cases nothing is written.
-- @include finish
-- An outcome that is kept for a time stays while somebody needs it; the last one's end sets its lifetime anew.
local function stay(id, object)
  redis.call('PERSIST', key_task(id))
  redis.call('PERSIST', key_value(id))
  if object then
    keep_object(object)
    redis.call('PERSIST', key_holders(object))
  end
end
local function wait_for(id, needs)
  local left, gone, ended = 0, {}, nil
  local states, plain, kept, objects = {}, {}, {}, {}
  for i, dependency in ipairs(needs) do
    local facts = redis.call('HMGET', key_task(dependency), 'state', 'more', 'kept', 'result')
    local state = facts[1]
    states[i], plain[i], kept[i], objects[i] = state, not facts[2], facts[3], facts[4]
    if not state then
      gone[#gone + 1] = dependency
    elseif is_terminal(state) and state ~= 'success' then
      ended = dependency
    end
  end
  if ended then return nil, ended end
  if #gone > 0 then return nil, nil, gone end
  for i, dependency in ipairs(needs) do
    redis.call('HINCRBY', key_task(dependency), 'users', 1)
    if plain[i] then redis.call('HSET', key_task(dependency), 'more', 1) end
    if kept[i] then stay(dependency, objects[i]) end
    if states[i] ~= 'success' then
      redis.call('SADD', key_dependents(dependency), id)
      left = left + 1
    end
  end
  return left
end
