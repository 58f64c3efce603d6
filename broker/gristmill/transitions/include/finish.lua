-- finish: a task has reached a terminal state: its client is told, its dependents go on or fail, its record goes
-- unless a dependent still needs the value. Everything downstream is handled from a list, never by recursion.
-- @include transition
-- @include requeue
-- @include objects
-- @include record
local RESOLVE_LIMIT = 500
-- So many cost no more than the request that would leave them to another slice.
local FEW_NEEDS = 4
-- How many more things this script may touch downstream: a dependent, and each task that it needs in its turn.
local budget = RESOLVE_LIMIT
local doomed, forgotten, downstream = {}, {}, {}
-- Kept outcomes that nobody else needs, with the milliseconds that they stay; nil when there are none.
local expiring
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
-- How many tasks fewer need the value of each, and for how many fewer each waits: written once, however many they are.
local dropped_uses, released = {}, {}
local function drop_use(dependency)
  dropped_uses[dependency] = (dropped_uses[dependency] or 0) + 1
end
local function write_dropped(dependency, dropped)
  local key = key_task(dependency)
  local facts = redis.call('HMGET', key, 'state', 'users', 'result', 'keep')
  if not facts[1] then return end
  local users = tonumber(facts[2] or 0) - dropped
  if users > 0 or not is_terminal(facts[1]) then
    redis.call('HSET', key, 'users', users)
    return
  end
  if facts[4] then
    redis.call('HSET', key, 'users', 0)
    expiring = expiring or {}
    expiring[dependency] = facts[4]
    return
  end
  doomed[#doomed + 1] = key
  doomed[#doomed + 1] = key_value(dependency)
  doomed[#doomed + 1] = key_dependents(dependency)
  if facts[3] then drop_holder(facts[3], dependency) end
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
  local more = redis.call('HMGET', key_task(id), 'payload', 'object', 'needs', 'users', 'nested', 'keep', 'watchers')
  if more[1] then doomed[#doomed + 1] = key_payload(id) end
  if more[2] then free_object(more[2]) end
  end_nested(more[5])
  if record.entry and string.find(record.entry, CLAIMED, 1, true) then redis.call('SREM', key_worker_claimed(record.worker), id) end
  if more[3] then
    -- What it has needed; what is beyond the budget is left to other slices.
    local dropped, most, rest = 0, budget > 0 and RESOLVE_LIMIT or FEW_NEEDS, {}
    for dependency in string.gmatch(more[3], '%S+') do
      dropped = dropped + 1
      if dropped <= most then
        -- One that was assigned waits for nothing any more.
        if record.state == 'inactive' then redis.call('SREM', key_dependents(dependency), id) end
        drop_use(dependency)
        budget = budget - 1
      else
        rest[#rest + 1] = '"' .. dependency .. '"'
      end
    end
    for from = 1, #rest, RESOLVE_LIMIT do
      redis.call('XADD', key_continued(), '*', 'drop_uses', '{"version":1,"task":"' .. id .. '","dependencies":[' .. table.concat(rest, ',', from, math.min(from + RESOLVE_LIMIT - 1, #rest)) .. ']}')
    end
  end
  -- The row of the outcome for those who ask by id, a `%` in place of the payload.
  local row = (more[6] or more[7]) and number .. ',' .. attempt .. ',"' .. to .. '",%,' .. measured .. ',' .. wait
  for watcher in string.gmatch(more[7] or '', '%S+') do
    if outcome.object and not more[6] and redis.call('EXISTS', key_client_inbox(watcher)) == 1 then
      hold_object(outcome.object, watcher)
      redis.call('SADD', key_client_objects(watcher), outcome.object)
    end
    notify(watcher, 'watched', '{"task":"' .. id .. '","worker":"' .. (record.worker or '') .. '","row":[' .. string.gsub(row, '%%', function() return payload end, 1) .. ']}')
  end
  local used = tonumber(more[4] or '0') > 0
  if not used and not more[6] then
    doomed[#doomed + 1] = key_dependents(id)
    return forget(id)
  end
  local tasks = forgotten[client]
  if tasks then tasks[#tasks + 1] = id else forgotten[client] = { id } end
  redis.call('HSET', key_task(id), 'state', to)
  redis.call('HDEL', key_task(id), 'assignment', 'request', 'payload', 'object', 'needs', 'nested')
  redis.call('SET', key_value(id), payload)
  fresh[id], ended_as[id] = payload, to
  if outcome.object then
    redis.call('HSET', key_task(id), 'result', outcome.object)
    hold_object(outcome.object, id)
  end
  if more[6] then
    redis.call('HSET', key_task(id), 'kept', (record.worker or '') .. ' ' .. row)
    for object in string.gmatch(redis.call('HGET', key_task(id), 'held') or '', '%S+') do drop_holder(object, id) end
    redis.call('HDEL', key_task(id), 'held', 'watchers')
    if not used then
      expiring = expiring or {}
      expiring[id] = more[6]
    end
  end
  downstream[#downstream + 1] = id
end
-- Lets the dependents of one finished task go on, as far as the budget reaches; the rest is left to another slice.
local function resolve(id)
  local state = ended_as[id] or redis.call('HGET', key_task(id), 'state')
  while budget > 0 do
    -- One that ends with it may need much itself: these are looked at one by one.
    local most = state == 'success' and math.min(budget, 100) or 1
    local popped = redis.call('SPOP', key_dependents(id), most)
    budget = budget - #popped
    for _, dependent in ipairs(popped) do
      if state == 'success' then
        released[dependent] = (released[dependent] or 0) + 1
      else
        local record = record_of(dependent)
        local canceled = state == 'canceled' or state == 'canceled_not_found'
        local to = record and transition(record.state, canceled and 'DependencyCanceled' or 'DependencyFailed')
        if to then
          finish(dependent, record, to, { payload = fresh[id] or redis.call('GET', key_value(id)) or 'null', because = id, error = cjson.encode('a dependency ended: ' .. id) })
        end
      end
    end
    if #popped < most then return end
  end
  redis.call('XADD', key_continued(), '*', 'resolve', '{"version":1,"task":"' .. id .. '"}')
end
local function write_finished()
  local at = 1
  while at <= #downstream do
    resolve(downstream[at])
    at = at + 1
  end
  for dependent, fewer in pairs(released) do
    local left = not ended[dependent] and redis.call('HINCRBY', key_task(dependent), 'dependencies', -fewer)
    if left == 0 then
      local facts = redis.call('HMGET', key_task(dependent), 'state', 'function', 'call', 'place', 'attempt', 'more', 'payload', 'object', 'size', 'options', 'needs', 'priority', 'suspect', 'deaths')
      let_go[dependent] = facts
      enter_lane(dependent, facts[4], facts[12], facts[14])
    elseif left and left < 0 then
      -- There is no record of it any more, or one that came again and waits for nothing.
      redis.call('HDEL', key_task(dependent), 'dependencies')
    end
  end
  for dependency, dropped in pairs(dropped_uses) do write_dropped(dependency, dropped) end
  if expiring then
    for id, keep in pairs(expiring) do
      local object = redis.call('HGET', key_task(id), 'result')
      redis.call('PEXPIRE', key_task(id), keep)
      redis.call('PEXPIRE', key_value(id), keep)
      if object then
        redis.call('PEXPIRE', key_holders(object), keep)
        redis.call('ZREM', key_objects(), object)
        each_chunk(object, function(key) redis.call('PEXPIRE', key, keep) end)
      end
    end
  end
  for from = 1, #doomed, 500 do redis.call('UNLINK', unpack(doomed, from, math.min(from + 499, #doomed))) end
  for client, tasks in pairs(forgotten) do
    for from = 1, #tasks, 500 do redis.call('SREM', key_client_tasks(client), unpack(tasks, from, math.min(from + 499, #tasks))) end
  end
end
