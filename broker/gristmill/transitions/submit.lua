-- submit: applies a batch of calls: each gets a record, and is assigned at once when its lane is empty and a worker
-- has room; otherwise it waits in its lane, or behind its dependencies.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate early newer malformed unknown
-- @include accept
-- @include finish
-- @include assign
-- @include lane
-- @include needs
local MOST_ROWS, MOST_OBJECTS = 1000, 500
local MOST_ABOUT, NEEDS_TOLD = 2048, 100
local message, word = decode()
if not message then return word end
-- What is not accepted frees the object that carried its call: it belongs to that task alone, and would lie there for
-- a day. Only objects of this client that nobody holds.
local function drop_call(row)
  local options = type(row) == 'table' and row[4]
  local object = type(options) == 'table' and options.object
  if is_object(object) and string.sub(object, 1, #message.client + 2) == message.client .. '.c' and redis.call('EXISTS', key_holders(object)) == 0 then free_object(object) end
end
local function drop_calls()
  for _, row in ipairs(type(message.tasks) == 'table' and message.tasks or {}) do drop_call(row) end
end
local client, batch = message.client, message.batch
if not is_id(client) or not is_whole(batch, 1, 1e14) then return refuse_entry('expected a client and the number of a batch') end
local facts = redis.call('HMGET', key_client(client), 'batch', 'last', 'ahead', 'ended', 'registration', 'base:' .. tostring(message.lane))
-- Batches are numbered anew with each registration: one of a later registration waits for it, an earlier one is void.
local registration = tonumber(message.registration) or tonumber(facts[5])
local ahead = facts[1] and registration > tonumber(facts[5])
if not facts[4] and not batch_applied(client, message.after, ahead) then return 'early' end
-- What a task here needs of other clients has to be there as well.
for other, number in pairs(type(message.others) == 'table' and message.others or {}) do
  if is_id(other) and not batch_applied(other, number) then return 'early' end
end
if not accept() then return 'duplicate' end
count('requests:tasks', 1)
if not facts[1] or facts[4] or ahead then
  count('refused:tasks:unknown_client', 1)
  drop_calls()
  write_changes()
  return 'unknown'
end

-- The batch is marked as applied: up to where there is no gap in the record, beyond it in a set of `ahead` batches.
local applied = tonumber(facts[1])
if registration < tonumber(facts[5]) or batch <= applied or (batch > applied + 1 and redis.call('SADD', key_client_batches(client), batch) == 0) then
  count('refused:tasks:applied_batch', 1)
  write_changes()
  return 'duplicate'
end
local ahead = tonumber(facts[3] or 0)
if batch == applied + 1 then
  applied = batch
  while ahead > 0 and redis.call('SREM', key_client_batches(client), applied + 1) == 1 do applied, ahead = applied + 1, ahead - 1 end
else
  ahead = ahead + 1
end
redis.call('HSET', key_client(client), 'batch', applied, 'ahead', ahead)
-- An entry's id begins with the time at which it came.
local submitted = string.match(entry, '^%d+')

local function refuse(numbers, reason)
  if #numbers > 0 then notify(client, 'refused', cjson.encode({ reason = reason, tasks = numbers })) end
end
local function is_lane(value)
  return type(value) == 'string' and is_id((string.gsub(value, ',', '-')))
end
if type(message.tasks) ~= 'table' or #message.tasks > MOST_ROWS or type(message.functions) ~= 'table' or not is_lane(message.lane) then
  quarantine('expected lane, functions and at most ' .. MOST_ROWS .. ' tasks')
  local numbers = {}
  for _, row in ipairs(type(message.tasks) == 'table' and message.tasks or {}) do
    if type(row) == 'table' and is_whole(row[1], 0, 1e10) then numbers[#numbers + 1] = row[1] end
  end
  refuse(numbers, 'the batch could not be understood; see the quarantine stream')
  drop_calls()
  write_changes()
  return 'malformed'
end
local intake = redis.call('GET', key_intake())
if intake and intake ~= 'open' then
  local numbers = {}
  for _, row in ipairs(message.tasks) do
    if type(row) == 'table' and is_whole(row[1], 0, 1e10) then numbers[#numbers + 1] = row[1] end
  end
  refuse(numbers, 'intake: ' .. intake)
  drop_calls()
  write_changes()
  return 'applied'
end

-- The first mention of an object takes the lifetime off and makes the client its holder. False when it is gone.
local function mention(object)
  if redis.call('SADD', key_client_objects(client), object) == 0 then return true end
  if keep_object(object) then
    hold_object(object, client)
    return true
  end
  redis.call('SREM', key_client_objects(client), object)
  return false
end
local functions = {}
for index, pair in ipairs(message.functions) do
  if type(pair) == 'table' and is_object(pair[1]) and type(pair[2]) == 'string' then
    local usable = mention(pair[1])
    -- What the function names lives as long as it does.
    if type(pair[3]) == 'table' then
      for _, object in ipairs(pair[3]) do usable = is_object(object) and mention(object) and usable end
    end
    functions[index] = { objects = pair[3], id = pair[1], name = cut(pair[2], math.max(8, 63 - #pair[1])), usable = usable }
  end
end

-- Lanes: where each has got to, whether tasks wait there, who has room.
local lanes = {}
local function lane_of(name)
  local lane = lanes[name]
  if lane then return lane end
  local reached = redis.call('HGET', key_lanes(), name)
  if not reached then
    know_lane(name)
    reached = redis.call('HGET', key_lanes(), name)
  end
  local base = facts[6]
  if name ~= message.lane then base = redis.call('HGET', key_client(client), 'base:' .. name) end
  lane = { name = name, base = tonumber(base or '0'), reached = tonumber(reached), busy = redis.call('EXISTS', key_ready(name)) == 1, ready = {} }
  if not lane.busy then lane.workers = workers_with_room(name, #message.tasks) end
  lanes[name] = lane
  return lane
end

-- Under the policy even_load capabilities do not count, but for the Python version.
local even_load
local function lane_asked(lane)
  if not lane then return message.lane end
  if even_load == nil then even_load = redis.call('HGET', key_namespace_facts(), 'allocation') == 'even_load' end
  return even_load and message.lane or lane
end
local last = tonumber(facts[2])
local greatest, accepted, missing, broken, lost = last, {}, {}, {}, {}

-- Everything that can be wrong with a row is found before anything is written for it.
local function option(options, name, least, most)
  local value = options[name]
  if value == nil or value == cjson.null then return nil end
  if not is_whole(value, least, most) then error('expected ' .. name .. ' to be a whole number from ' .. least .. ' to ' .. most, 0) end
  return value
end
local function json_of(name, value)
  local readable, text = pcall(cjson.encode, value)
  return readable and text or error('expected ' .. name .. ' to be JSON', 0)
end
-- What a task submits runs before its like: the deepest first.
local usual = is_whole(message.priority, -1000, 1000) and message.priority or 0
local function check(row)
  if type(row) ~= 'table' then error('expected a row', 0) end
  local number, called, call, options = row[1], functions[(tonumber(row[2]) or -1) + 1], row[3], row[4]
  if not is_whole(number, 0, 9999999999) then error('expected a task number', 0) end
  if not called then error('expected an index into functions', 0) end
  local task = { number = number, id = client .. '.' .. string.format('%07d', number), called = called, lane = message.lane, priority = usual }
  if type(call) == 'string' then task.call = call end
  if type(options) == 'table' then
    if options.lane and not is_lane(options.lane) then error('expected a lane of capability names', 0) end
    task.lane = lane_asked(options.lane)
    task.priority = option(options, 'priority', -1000, 1000) or usual
    if options.object then
      if not is_object(options.object) then error('expected an object id', 0) end
      task.object, task.size = options.object, option(options, 'size', 0, 1e14) or 0
    end
    if type(options.objects) == 'table' then
      if #options.objects > MOST_OBJECTS then error('expected at most ' .. MOST_OBJECTS .. ' objects', 0) end
      for _, object in ipairs(options.objects) do
        if not is_object(object) then error('expected ids of objects', 0) end
      end
      task.objects = options.objects
    end
    task.keep = option(options, 'keep_ms', 1, 1e11)
    task.retries, task.retry_delay, task.max_deaths = option(options, 'retries', 0, 1e9), option(options, 'retry_delay_ms', 0, 1e11), option(options, 'max_deaths', 1, 1e9)
    if type(options.run) == 'table' and next(options.run) then task.run = json_of('run', options.run) end
    if type(options.dependencies) == 'table' and #options.dependencies > 0 then
      local seen = {}
      task.needs = {}
      for _, dependency in ipairs(options.dependencies) do
        if not is_id(dependency) then error('expected dependencies to be ids of tasks', 0) end
        if not seen[dependency] then task.needs[#task.needs + 1] = dependency end
        seen[dependency] = true
      end
      task.incomplete = options.incomplete == true and 1 or nil
    end
  end
  if not task.call and not task.object then error('expected a call', 0) end
  if type(options) ~= 'table' then return task end
  -- What people want to know of a task that is not plain: the last column of its first row in `events`.
  local about = options.about
  local told = {}
  if about ~= nil and about ~= cjson.null then
    if type(about) ~= 'table' or #json_of('about', about) > MOST_ABOUT then error('expected about to be an object of at most ' .. MOST_ABOUT .. ' bytes', 0) end
    for name, value in pairs(about) do told[tostring(name)] = value end
  end
  if task.lane ~= message.lane then told.lane = task.lane end
  if task.needs then
    told.needs = {}
    for i = 1, math.min(#task.needs, NEEDS_TOLD) do told.needs[i] = tonumber(string.match(task.needs[i], '%d+$')) end
  end
  if next(told) then task.told = ',null,null,null,null,' .. cjson.encode(told) end
  return task
end

-- The record of a task as it will lie in Redis; `more` says that there are fields beyond the usual.
local function new_record(task, order, left)
  local record = { ['function'] = task.called.id .. ' ' .. task.called.name, place = task.lane .. ' ' .. order, submitted = submitted, call = task.call }
  if task.call and #task.call > 64 then
    -- A longer field would make Redis unpack the whole hash, to more than twice its size.
    redis.call('SET', key_payload(task.id), task.call)
    record.call, record.payload, record.more = nil, #task.call, 1
  end
  if task.keep then
    -- It outlives its client: what it needs is held by itself.
    local held = { task.called.id, unpack(task.objects or {}) }
    for _, object in ipairs(type(task.called.objects) == 'table' and task.called.objects or {}) do held[#held + 1] = object end
    for _, object in ipairs(held) do hold_object(object, task.id) end
    record.more, record.keep, record.held = 1, task.keep, table.concat(held, ' ')
    redis.call('HSET', key_client(client), 'kept', 1)
  end
  if task.object or task.run or task.needs or task.retries or task.max_deaths or task.priority ~= 0 then
    record.more, record.object, record.size, record.options = 1, task.object, task.size, task.run
    record.retries, record.retry_delay, record.max_deaths = task.retries, task.retry_delay, task.max_deaths
    if task.priority ~= 0 then record.priority = task.priority end
    if task.needs then record.needs, record.dependencies, record.incomplete = table.concat(task.needs, ' '), left, task.incomplete end
  end
  return record
end
local function enter(task)
  local lane = lane_of(task.lane)
  local called = task.called
  if task.number <= greatest and (new[task.id] or redis.call('EXISTS', key_task(task.id)) == 1) then
    count('refused:tasks:known', 1)
    return
  end
  local whole = not task.object or has_object(task.object)
  if task.objects then
    for _, object in ipairs(task.objects) do whole = mention(object) and whole end
  end
  if not whole then
    lost[#lost + 1] = task.number
    return
  end
  local left = 0
  if task.needs then
    local ended_one, gone
    left, ended_one, gone = wait_for(task.id, task.needs)
    if not left then
      if ended_one then
        local state = redis.call('HGET', key_task(ended_one), 'state')
        local canceled = state == 'canceled' or state == 'canceled_not_found'
        finish(task.id, { name = task.called.name }, canceled and 'canceled' or 'failed', { payload = redis.call('GET', key_value(ended_one)) or 'null', because = ended_one })
      else
        missing[#missing + 1] = { task.number, gone }
      end
      return drop_call({ 0, 0, 0, { object = task.object } })
    end
    -- The rest of what it needs comes by `depend`.
    if task.incomplete then left = left + 1 end
  end
  if task.object then keep_object(task.object) end
  if task.number > last and task.number + lane.base < lane.reached then
    lane.base = lane.reached - task.number
    lane.moved = true
  end
  local order = lane.base + task.number
  if not task.keep then accepted[#accepted + 1] = task.id end
  if task.number > greatest then greatest = task.number end
  local record = new_record(task, string.format('%d', order), left)
  local worker
  if left == 0 and lane.workers then worker, lane.workers = next_worker(lane.workers) end
  if worker then
    record.assignment = assignment_of('1', add_entry(worker, task.id, record, '1'), worker.id)
    record.state = 'running'
    if order > lane.reached then
      lane.reached = order
      lane.advanced = true
    end
    will_write(task.id, record)
    return change(task.id, nil, 'running', '1', worker.id, called.name, task.told)
  end
  record.state = 'inactive'
  will_write(task.id, record)
  change(task.id, nil, 'inactive', '0', nil, called.name, task.told)
  if left == 0 then
    local ready = lane.ready
    ready[#ready + 1] = order - task.priority * PRIORITY_STEP
    ready[#ready + 1] = task.id
    -- What comes later in this batch must not overtake it.
    lane.workers = nil
  end
end

for _, row in ipairs(message.tasks) do
  local sound, task = pcall(check, row)
  if not sound then
    quarantine(task, row)
    drop_call(row)
    if type(row) == 'table' and is_whole(row[1], 0, 1e10) then broken[#broken + 1] = row[1] end
  elseif not task.called.usable then
    lost[#lost + 1] = task.number
  else
    enter(task)
  end
end

local client_fields = {}
if greatest > last then client_fields[1], client_fields[2] = 'last', greatest end
for name, lane in pairs(lanes) do
  if lane.moved then
    client_fields[#client_fields + 1] = 'base:' .. name
    client_fields[#client_fields + 1] = lane.base
  end
  if #lane.ready > 0 then redis.call('ZADD', key_ready(name), unpack(lane.ready)) end
  if lane.advanced then redis.call('HSET', key_lanes(), name, lane.reached) end
end
if #client_fields > 0 then redis.call('HSET', key_client(client), unpack(client_fields)) end
if #accepted > 0 then redis.call('SADD', key_client_tasks(client), unpack(accepted)) end
refuse(broken, 'the call could not be understood; see the quarantine stream')
refuse(lost, 'object: a function or call that the task names is gone from Redis')
if #missing > 0 then notify(client, 'missing', cjson.encode({ tasks = missing })) end
-- Less than `settle` does: nothing here frees a place or lets a waiting task go on.
write_needed()
write_finished()
write_loads()
write_changes()
return 'applied'
