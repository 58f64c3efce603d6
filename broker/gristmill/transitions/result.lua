-- result: applies outcomes that a processor, or its agent in its place, has sent: transition, free the slot,
-- set the worker's room by what it took, dispatch the next, tell the clients.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed
-- @include clock
-- @include accept
-- @include settle
-- @include room
local message, word = decode()
if not message then return word end
if not is_id(message.worker) or type(message.outcomes) ~= 'table' or #message.outcomes > 1000 then return refuse_entry('expected worker and outcomes') end
if not accept() then return 'duplicate' end
count('requests:outcomes', 1)
local worker_id = message.worker
local worker = worker_of(worker_id)
local measured, total = 0, 0
local EVENTS = { success = 'ResultSuccess', failed = 'ResultFailed', retry = 'ResultFailedRetry', died = 'ResultWorkerDied' }
local null = cjson.null
local FAILURES_KEPT = 1000

local function whole(value)
  if type(value) ~= 'number' or not (value >= 0 and value <= 1e14) then error('expected a number', 0) end
  return string.format('%d', value)
end
-- Text from outside enters JSON by cjson.encode, which also is ten times faster than checking it by a pattern.
local function payload_json(payload)
  if type(payload) == 'string' then
    if string.find(payload, '"', 1, true) then error('expected base64', 0) end
    return cjson.encode(payload)
  end
  if type(payload) ~= 'table' then error('expected a payload', 0) end
  if payload.object then
    if not is_object(payload.object) then error('expected an object id', 0) end
    return '{"object":"' .. payload.object .. '","size":' .. whole(payload.size) .. '}', payload.object
  end
  return cjson.encode({ error = tostring(payload.error), message = tostring(payload.message) })
end
local function check(row)
  if type(row) ~= 'table' then error('expected a row', 0) end
  if type(row[1]) ~= 'string' or type(row[2]) ~= 'number' or not EVENTS[row[3]] then error('expected task, attempt and status', 0) end
  local outcome = { duration = row[5], measured = whole(row[5]) .. ',' .. whole(row[6]) .. ',' .. whole(row[7]) }
  outcome.payload, outcome.object = payload_json(row[4])
  if row[8] and row[8] ~= null then
    outcome.error = cjson.encode(cut(tostring(row[8]), 300))
    if type(row[9]) == 'string' then outcome.traceback = cut(row[9], 8192) end
  end
  return row[1], row[2], EVENTS[row[3]], outcome
end

local function apply(id, attempt, event, outcome)
  local record = record_assigned(id, worker_id, attempt)
  if not record then
    if not is_id(id) then error('expected a task id', 0) end
    count('stale:outcomes', 1)
    return
  end
  if event == 'ResultFailedRetry' then
    local left = tonumber(redis.call('HGET', key_task(id), 'retries') or '0')
    if left <= 0 then event = 'ResultFailed' end
  end
  local to = transition(record.state, event)
  if not to then return end
  if worker then
    measured, total = measured + 1, total + outcome.duration
  end
  free_entry(worker_id, record.entry)
  if outcome.traceback then
    redis.call('XADD', key_failures(), 'MAXLEN', '~', FAILURES_KEPT, '*', 'task', id, 'attempt', record.attempt, 'worker', worker_id, 'traceback', outcome.traceback)
  end
  if to == 'inactive' then
    redis.call('HINCRBY', key_task(id), 'retries', -1)
    local delay = tonumber(redis.call('HGET', key_task(id), 'retry_delay') or '0')
    local why = ',' .. outcome.measured .. ',' .. (outcome.error or 'null') .. ',{"event":"' .. event .. '"}'
    if delay > 0 then
      delay_task(id, record, to, now_ms() + delay, why)
    else
      requeue(id, record, to, why)
    end
    return
  end
  if outcome.object then
    if keep_object(outcome.object) then
      local client = split_id(id)
      -- An outcome that is kept goes when its time is over, whoever has looked at it.
      local kept = record.more and redis.call('HEXISTS', key_task(id), 'keep') == 1
      if not kept and redis.call('EXISTS', key_client_inbox(client)) == 1 then
        hold_object(outcome.object, client)
        redis.call('SADD', key_client_objects(client), outcome.object)
      end
    else
      to = transition(record.state, 'ResultFailed')
      outcome.object = nil
      outcome.payload = cjson.encode({ error = 'MissingObjectError', message = 'the result was gone from Redis before it was accepted' })
    end
  end
  finish(id, record, to, outcome)
  if outcome.object and redis.call('EXISTS', key_holders(outcome.object)) == 0 then free_object(outcome.object) end
end

for _, row in ipairs(message.outcomes) do
  local sound, id, attempt, event, outcome = pcall(check, row)
  if not sound then
    local reason = tostring(id)
    quarantine(reason, row)
    -- Its future fails, when at least the attempt can be read.
    if type(row) == 'table' and is_id(row[1]) and type(row[2]) == 'number' then
      sound, id, attempt, event = true, row[1], row[2], 'ResultFailed'
      outcome = { duration = 0, payload = cjson.encode({ error = 'ResultSerializationError', message = 'the outcome could not be understood (' .. reason .. '); see the quarantine stream' }) }
    end
  end
  if sound then
    local applied, reason = pcall(apply, id, attempt, event, outcome)
    if not applied then quarantine(reason, row) end
  end
end
write_freed(true)
if worker and not worker.gone then
  if measured > 0 then set_room(worker, total / measured, measured) end
end
settle()
return 'applied'
