-- assign: gives a task to a worker: an entry in its task stream, payload included, and the record says so.
-- @include transition
-- @include load
-- @include record
local INLINE_VALUES = 64
-- What the entry carries beyond the usual: large calls, run options, values of dependencies.
local function extra_fields(id, record)
  local fields = {}
  if record.payload then
    fields[1], fields[2] = 'call', redis.call('GET', key_payload(id)) or ''
  elseif record.object then
    fields[1], fields[2], fields[3], fields[4] = 'object', record.object, 'size', record.size
  end
  if record.suspect then
    -- What is finished is sent before it starts, so that the oldest entry of a dead worker is the culprit.
    record.options = '{"suspect":true' .. (record.options and #record.options > 2 and ',' .. string.sub(record.options, 2) or '}')
  end
  if record.options then
    fields[#fields + 1] = 'options'
    fields[#fields + 1] = record.options
  end
  if record.priority then
    fields[#fields + 1] = 'priority'
    fields[#fields + 1] = record.priority
  end
  if record.needs then
    local needs, values = {}, {}
    for dependency in string.gmatch(record.needs, '%S+') do needs[#needs + 1] = dependency end
    if #needs > INLINE_VALUES then
      fields[#fields + 1] = 'needs'
      fields[#fields + 1] = record.needs
    else
      for _, dependency in ipairs(needs) do
        values[#values + 1] = '"' .. dependency .. '":' .. (fresh[dependency] or redis.call('GET', key_value(dependency)) or 'null')
      end
      fields[#fields + 1] = 'values'
      fields[#fields + 1] = '{' .. table.concat(values, ',') .. '}'
    end
  end
  return fields
end
-- The entry's first field is `<id> <attempt> <call> <function> <name>`: one field costs half of what five do.
-- A call that does not lie in the record comes as a field of its own, and `-` stands in its place.
local function add_entry(worker, id, record, attempt)
  worker.outstanding = worker.outstanding + 1
  touch(worker)
  local task = id .. ' ' .. attempt .. ' ' .. (record.call or '-') .. ' ' .. record['function']
  if not record.more then return redis.call('XADD', worker.tasks, '*', 'task', task) end
  return redis.call('XADD', worker.tasks, '*', 'task', task, unpack(extra_fields(id, record)))
end
-- Assigns a task that has a record and is in no lane any more.
local function assign(worker, id)
  local facts = let_go[id] or redis.call('HMGET', key_task(id), 'state', 'function', 'call', 'place', 'attempt', 'more')
  if not facts[1] then return end
  local to = transition(facts[1], 'HasCapacity')
  if not to then return end
  local record = { ['function'] = facts[2], call = facts[3], more = facts[6] }
  if record.more then
    if facts[7] == nil then
      for at, value in ipairs(redis.call('HMGET', key_task(id), 'payload', 'object', 'size', 'options', 'needs', 'priority', 'suspect')) do facts[6 + at] = value end
    end
    record.payload, record.object, record.size, record.options, record.needs, record.priority, record.suspect = unpack(facts, 7, 13)
  end
  local attempt = string.format('%d', (facts[5] or 0) + 1)
  local at = add_entry(worker, id, record, attempt)
  redis.call('HSET', key_task(id), 'state', to, 'assignment', assignment_of(attempt, at, worker.id))
  change(id, facts[1], to, attempt, worker.id, name_in(facts[2]))
  return tonumber(string.match(facts[4], '%d+$'))
end
