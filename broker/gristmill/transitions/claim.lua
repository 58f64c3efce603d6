-- claim: a task that waits runs a child of its own client itself, because nobody else can: the first of the named tasks
-- that has not started, or that one of them needs. It is assigned to this worker without an entry, and the call comes by
-- the inbox. Nothing to run is an answer too.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate early newer malformed unknown
-- @include clock
-- @include accept
-- @include settle
-- @include busy
local MOST_STEPS = 500
local message, word = decode()
if not message then return word end
if not is_id(message.client) or not is_id(message.worker) or not is_whole(message.claim, 1, 1e14) or type(message.tasks) ~= 'table' or #message.tasks > MOST_STEPS then
  return refuse_entry('expected client, worker, claim and tasks')
end
for _, id in ipairs(message.tasks) do
  if not is_id(id) then return refuse_entry('expected ids of tasks') end
end
local client = message.client
if not batch_applied(client, message.after) then return 'early' end
if not accept() then return 'duplicate' end
count('requests:claim', 1)
local facts = redis.call('HMGET', key_client(client), 'batch', 'ended')
local worker = worker_of(message.worker)
if not facts[1] or facts[2] or not worker or worker.gone then
  write_changes()
  return 'unknown'
end
local served = {}
for _, lane in ipairs(worker.lanes) do served[lane] = true end

-- Whether it has not started and this worker can run it; then it is nowhere any more.
local function take(id, record)
  local lane = string.match(redis.call('HGET', key_task(id), 'place') or '', '^%S*')
  if not served[lane] then return false end
  if record.state == 'inactive' then
    -- A suspect runs alone here too.
    return redis.call('ZREM', key_ready(lane), id) == 1 or (redis.call('ZSCORE', key_ready(lane .. '!'), id) and not is_busy(worker) and redis.call('ZREM', key_ready(lane .. '!'), id) == 1)
  end
  if record.state ~= 'running' or string.find(record.entry, CLAIMED, 1, true) or not is_unread(record.worker, record.entry) then return false end
  free_entry(record.worker, record.entry)
  unassign(id, record, transition(transition('running', 'BalanceTaskCancel'), 'CancelConfirmCanceled'))
  change(id, 'running', 'inactive', record.attempt, nil, record.name)
  return true
end
local function call_of(id, attempt)
  local found = redis.call('HMGET', key_task(id), 'function', 'call', 'payload', 'object', 'size', 'options', 'needs', 'priority')
  local fields = { 'task', id .. ' ' .. attempt .. ' ' .. (found[2] or '-') .. ' ' .. found[1] }
  for _, piece in ipairs(extra_fields(id, { payload = found[3], object = found[4], size = found[5], options = found[6], needs = found[7], priority = found[8] })) do fields[#fields + 1] = piece end
  return fields
end
local function claim(id, record)
  local attempt = string.format('%d', record.attempt + 1)
  local to = transition('inactive', 'HasCapacity')
  redis.call('HSET', key_task(id), 'state', to, 'assignment', assignment_of(attempt, string.format('%d', now_ms()) .. CLAIMED, worker.id), 'more', 1)
  redis.call('SADD', key_worker_claimed(worker.id), id)
  change(id, 'inactive', to, attempt, worker.id, record.name)
  return call_of(id, attempt)
end

local fields, seen, todo, at = {}, {}, message.tasks, 1
while at <= #todo and at <= MOST_STEPS do
  local id = todo[at]
  at = at + 1
  local record = not seen[id] and record_of(id)
  seen[id] = true
  if record then
    if take(id, record) then
      fields = claim(id, record)
      break
    end
    if record.state == 'inactive' and record.more then
      for dependency in string.gmatch(redis.call('HGET', key_task(id), 'needs') or '', '%S+') do todo[#todo + 1] = dependency end
    end
  end
end
notify(client, 'claimed', cjson.encode({ claim = message.claim, fields = #fields > 0 and fields or cjson.null }))
settle()
return 'applied'
