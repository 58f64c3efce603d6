-- finish: a task has reached a terminal state: its client is told, its dependents go on or fail, its record goes
-- unless a dependent still needs the value. Everything downstream is handled from a list, never by recursion.
-- @include transition
-- @include requeue
-- @include objects
-- @include record
local RESOLVE_LIMIT = 500
-- How many more things this script may touch downstream: a dependent, and each task that it needs in its turn.
local budget = RESOLVE_LIMIT
local doomed, forgotten, downstream = {}, {}, {}
local function forget(id)
  local client = split_id(id)
  ended[id] = true
  doomed[#doomed + 1] = key_task(id)
  local tasks = forgotten[client]
  if not tasks then
    tasks = {}
    forgotten[client] = tasks
  end
  tasks[#tasks + 1] = id
end
-- One task fewer needs the value of `dependency`.
local function drop_use(dependency)
  local key = key_task(dependency)
  if redis.call('EXISTS', key) == 0 then return end
  if redis.call('HINCRBY', key, 'users', -1) <= 0 then
    local state = redis.call('HGET', key, 'state')
    if is_terminal(state) then
      doomed[#doomed + 1] = key
      doomed[#doomed + 1] = key_value(dependency)
      doomed[#doomed + 1] = key_dependents(dependency)
      local object = redis.call('HGET', key, 'result')
      if object then drop_holder(object, dependency) end
    end
  end
end
-- `outcome` is {payload = JSON text, measured = duration, cpu and memory as JSON text, error = JSON text, because}; all may be absent.
-- `record` is what `record_of` answers; a task that was never recorded has at least a name.
local function finish(id, record, to, outcome)
  local client, number = split_id(id)
  local attempt = record.attempt or '0'
  local measured = outcome.measured or '0,0,0'
  local wait = 0
  -- It was assigned when its entry was made: a stream's ids begin with the time.
  if record.entry and record.submitted then wait = math.max(0, string.match(record.entry, '^%d+') - record.submitted) end
  local payload = outcome.payload or 'null'
  tell_outcome(client, record.worker or '', '[' .. number .. ',' .. attempt .. ',"' .. to .. '",' .. payload .. ',' .. measured .. ',' .. wait .. (outcome.because and ',"' .. outcome.because .. '"' or '') .. ']')
  change(id, record.state, to, attempt, record.worker, record.name, ',' .. measured .. (outcome.error and ',' .. outcome.error or ''))
  count_function(record.name or '', to)
  if not record.more then return forget(id) end
  local more = redis.call('HMGET', key_task(id), 'payload', 'object', 'needs', 'users', 'nested')
  if more[1] then doomed[#doomed + 1] = key_payload(id) end
  if more[2] then free_object(more[2]) end
  end_nested(more[5])
  if record.entry and string.find(record.entry, CLAIMED, 1, true) then redis.call('SREM', key_worker_claimed(record.worker), id) end
  if more[3] then
    for dependency in string.gmatch(more[3], '%S+') do
      redis.call('SREM', key_dependents(dependency), id)
      drop_use(dependency)
      budget = budget - 1
    end
  end
  if tonumber(more[4] or '0') <= 0 then
    doomed[#doomed + 1] = key_dependents(id)
    return forget(id)
  end
  redis.call('SREM', key_client_tasks(client), id)
  redis.call('HSET', key_task(id), 'state', to)
  redis.call('HDEL', key_task(id), 'assignment', 'request', 'payload', 'object', 'needs', 'nested')
  redis.call('SET', key_value(id), payload)
  if outcome.object then
    redis.call('HSET', key_task(id), 'result', outcome.object)
    hold_object(outcome.object, id)
  end
  downstream[#downstream + 1] = id
end
-- Lets the dependents of one finished task go on, as far as the budget reaches; the rest is left to another slice.
local function resolve(id)
  local state = redis.call('HGET', key_task(id), 'state')
  while budget > 0 do
    local dependent = redis.call('SPOP', key_dependents(id))
    if not dependent then break end
    budget = budget - 1
    local record = record_of(dependent)
    if record then
      if state == 'success' then
        if redis.call('HINCRBY', key_task(dependent), 'dependencies', -1) == 0 and record.state == 'inactive' then enqueue(dependent) end
      else
        local canceled = state == 'canceled' or state == 'canceled_not_found'
        local to = transition(record.state, canceled and 'DependencyCanceled' or 'DependencyFailed')
        if to then
          local payload = redis.call('GET', key_value(id))
          finish(dependent, record, to, { payload = payload or 'null', because = id, error = cjson.encode('a dependency ended: ' .. id) })
        end
      end
    end
  end
  if redis.call('EXISTS', key_dependents(id)) == 1 then
    redis.call('XADD', key_continued(), '*', 'resolve', '{"version":1,"task":"' .. id .. '"}')
  end
end
local function write_finished()
  local at = 1
  while at <= #downstream do
    resolve(downstream[at])
    at = at + 1
  end
  for from = 1, #doomed, 500 do redis.call('UNLINK', unpack(doomed, from, math.min(from + 499, #doomed))) end
  for client, tasks in pairs(forgotten) do
    for from = 1, #tasks, 500 do redis.call('SREM', key_client_tasks(client), unpack(tasks, from, math.min(from + 499, #tasks))) end
  end
end
