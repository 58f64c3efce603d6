-- needs: enters a task behind the tasks that it needs. Answers how many of them are not finished yet; or nil and one
-- that has ended without a value; or nil twice and those that are gone. In the last two cases nothing will be written.
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
-- What this script knows of tasks that others need, and what it has still to write of them and of new ones: each is read
-- at most once and written once, however many need it.
local needed, new = {}, {}
local function will_write(id, record)
  new[id] = record
  needed[id] = nil
end
local function look_at(dependency)
  local known = needed[dependency]
  if known then return known end
  local record = new[dependency]
  if record then
    known = { state = record.state }
  else
    local facts = redis.call('HMGET', key_task(dependency), 'state', 'kept', 'result', 'users')
    known = { state = facts[1], kept = facts[2], result = facts[3], users = tonumber(facts[4] or 0) }
  end
  known.added, known.waiting = 0, {}
  needed[dependency] = known
  return known
end
local function wait_for(id, needs)
  local gone = {}
  for _, dependency in ipairs(needs) do
    local state = look_at(dependency).state
    if not state then
      gone[#gone + 1] = dependency
    elseif is_terminal(state) and state ~= 'success' then
      return nil, dependency
    end
  end
  if #gone > 0 then return nil, nil, gone end
  local left = 0
  for _, dependency in ipairs(needs) do
    local known = needed[dependency]
    known.added = known.added + 1
    if known.state ~= 'success' then
      known.waiting[#known.waiting + 1] = id
      left = left + 1
    end
  end
  return left
end
local function write_record(id, record)
  if not record.more then
    if record.assignment then
      redis.call('HSET', key_task(id), 'state', record.state, 'assignment', record.assignment, 'function', record['function'], 'place', record.place, 'submitted', record.submitted, 'call', record.call)
    else
      redis.call('HSET', key_task(id), 'state', record.state, 'function', record['function'], 'place', record.place, 'submitted', record.submitted, 'call', record.call)
    end
    return
  end
  local fields = {}
  for name, value in pairs(record) do
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  redis.call('HSET', key_task(id), unpack(fields))
end
local function write_needed()
  for id, known in pairs(needed) do
    if known.added > 0 then
      if new[id] then
        new[id].more, new[id].users = 1, known.added
      else
        redis.call('HSET', key_task(id), 'users', known.users + known.added, 'more', 1)
        if known.kept then stay(id, known.result) end
      end
      for from = 1, #known.waiting, 500 do redis.call('SADD', key_dependents(id), unpack(known.waiting, from, math.min(from + 499, #known.waiting))) end
    end
  end
  for id, record in pairs(new) do write_record(id, record) end
  needed, new = {}, {}
end
