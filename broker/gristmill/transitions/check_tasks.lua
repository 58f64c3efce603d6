-- check_tasks: whether tasks are where their records say. What is in no place goes back to where it belongs, by the same
-- steps as otherwise; each finding is counted as `repaired:...`. Tasks that need very much are looked at in slices: then it
-- answers the id with which to go on.
-- KEYS: prefix
-- ARGV: ids
-- RETURNS: checked
-- @include settle
-- @include give_back
local function is_task(id)
  return string.find(id, '^[%w_|-]+%.%d+$') ~= nil
end
local function repaired(what)
  count('repaired:' .. what, 1)
end
local function tell_lost(id)
  local client, number = split_id(id)
  if redis.call('SREM', key_client_tasks(client), id) == 1 then notify(client, 'lost', '{"tasks":[' .. number .. ']}') end
end
-- A task whose dependency has vanished can never run: its client sends it again, with the values that it has.
local function send_again(id, needs, gone)
  local client, number = split_id(id)
  for _, need in ipairs(needs) do
    redis.call('SREM', key_dependents(need), id)
    drop_use(need)
  end
  forget(id)
  doomed[#doomed + 1] = key_payload(id)
  doomed[#doomed + 1] = key_dependents(id)
  count('state:inactive', -1)
  notify(client, 'missing', cjson.encode({ tasks = { { tonumber(number), gone } } }))
end
local resolving = {}
local function check_dependencies(id, left, text)
  local needs, gone, unfinished, listed = {}, {}, 0, true
  for need in string.gmatch(text or '', '%S+') do needs[#needs + 1] = need end
  budget = budget - #needs
  for _, need in ipairs(needs) do
    local state = redis.call('HGET', key_task(need), 'state')
    if not state then
      gone[#gone + 1] = need
    elseif state ~= 'success' or redis.call('SISMEMBER', key_dependents(need), id) == 1 then
      -- A finished one that still lists it is about to let it go on, in slices.
      unfinished = unfinished + 1
      if redis.call('SADD', key_dependents(need), id) == 1 then listed = false end
      if is_terminal(state) and not resolving[need] then
        resolving[need] = true
        downstream[#downstream + 1] = need
      end
    end
  end
  if #gone > 0 then
    repaired('dependency_gone')
    return send_again(id, needs, gone)
  end
  if unfinished == left and listed then return end
  repaired('dependencies')
  redis.call('HSET', key_task(id), 'dependencies', unfinished)
  if unfinished == 0 then enqueue(id) end
end
local function check_inactive(id)
  local facts = redis.call('HMGET', key_task(id), 'place', 'dependencies', 'needs', 'incomplete')
  local lane = facts[1] and string.match(facts[1], '^(%S+) %d+$')
  if not lane then
    repaired('record')
    redis.call('ZREM', key_delayed(), id)
    forget(id)
    count('state:inactive', -1)
    return tell_lost(id)
  end
  if facts[4] then return end
  if tonumber(facts[2] or 0) > 0 then return check_dependencies(id, tonumber(facts[2]), facts[3]) end
  if redis.call('ZSCORE', key_ready(lane), id) or redis.call('ZSCORE', key_ready(lane .. '!'), id) or redis.call('ZSCORE', key_delayed(), id) then return end
  repaired('nowhere')
  enqueue(id)
end
local ending = {}
local function check_assigned(id, record)
  if not record.entry then
    repaired('record')
    redis.call('HDEL', key_task(id), 'assignment')
    redis.call('HSET', key_task(id), 'state', 'inactive')
    change(id, record.state, 'inactive', record.attempt, nil, record.name)
    return check_inactive(id)
  end
  if string.find(record.entry, CLAIMED, 1, true) then return end
  local tasks = key_worker_tasks(record.worker)
  local found = redis.pcall('XRANGE', tasks, record.entry, record.entry)
  if not found[1] then
    repaired('entry_gone')
    local to = transition(record.state, 'TaskReturned')
    if to then give_back(record.worker, id, record, to, 'TaskReturned') end
  elseif not ending[record.worker] and not worker_of(record.worker) and not redis.call('ZSCORE', key_workers(), record.worker) then
    -- Its record has vanished, and with it the lease that would end.
    ending[record.worker] = true
    repaired('worker_gone')
    redis.call('XADD', key_continued(), '*', 'end_worker', cjson.encode({ version = 1, worker = record.worker, reason = 'expired' }))
  end
end
local function check_finished(id)
  if tonumber(redis.call('HGET', key_task(id), 'users') or 0) > 0 or redis.call('TTL', key_task(id)) >= 0 then return end
  repaired('finished')
  forget(id)
  doomed[#doomed + 1] = key_value(id)
  doomed[#doomed + 1] = key_dependents(id)
end
local next_id
for id in string.gmatch(ids, '%S+') do
  if budget <= 0 then
    next_id = id
    break
  end
  local record = is_task(id) and record_of(id)
  if record and is_terminal(record.state) then
    check_finished(id)
  elseif record then
    local client = split_id(id)
    local facts = redis.call('HMGET', key_client(client), 'registration', 'ended')
    local detached = record.more and redis.call('HEXISTS', key_task(id), 'keep') == 1
    if facts[1] and not facts[2] and not detached and redis.call('SADD', key_client_tasks(client), id) == 1 then repaired('unlisted') end
    if record.state == 'inactive' then check_inactive(id) else check_assigned(id, record) end
  elseif is_task(id) and redis.call('EXISTS', key_task(id)) == 1 then
    -- Fields were written to a record that had been deleted.
    repaired('record')
    redis.call('DEL', key_task(id))
    tell_lost(id)
  end
end
settle()
if next_id then return next_id end
return 'checked'
