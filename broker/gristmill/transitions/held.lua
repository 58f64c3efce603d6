-- held: what a worker's processors hold, after another Redis server has taken over, whose history may have gone back.
-- What the worker was given and does not hold goes back to its lane. What it holds although no delivery is on record
-- (that was in the lost part) is marked as delivered, so that no processor gets it a second time.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate early newer malformed unknown
-- @include clock
-- @include accept
-- @include settle
-- @include give_back
local SLICE = 500
local PATIENCE_MS = 60000
local message, word = decode()
if not message then return word end
if not is_id(message.worker) or not is_whole(message.number, 0, 1e14) or type(message.tasks) ~= 'table' then return refuse_entry('expected worker, number and tasks') end
local function parts(at)
  local ms, sequence = string.match(at, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(sequence)
end
local function is_before(one, other)
  local ms, sequence = parts(one)
  local other_ms, other_sequence = parts(other)
  return ms < other_ms or (ms == other_ms and sequence < other_sequence)
end
-- The outcomes that the worker has sent again before this count: a finished task does not go back.
local oldest = redis.call('XRANGE', key_results(), '-', '+', 'COUNT', 1)[1]
if oldest and parts(oldest[1]) <= parts(entry) and oldest[1] ~= entry and now_ms() - parts(entry) < PATIENCE_MS then return 'early' end
if not accept() then return 'duplicate' end
local worker = worker_of(message.worker)
if not worker or worker.gone or redis.pcall('XPENDING', worker.tasks, 'processors').err then
  redis.call('XADD', key_worker_control(message.worker), '*', 'unknown', '{}')
  redis.call('EXPIRE', key_worker_control(message.worker), 60)
  return 'unknown'
end
-- Sent twice after a lost reply, it must not be applied again: by then processors hold more.
local known = tonumber(redis.call('HGET', key_worker(worker.id), 'held') or -1)
if message.number < known or (message.number == known and not message.continued) then return 'duplicate' end
redis.call('HSET', key_worker(worker.id), 'held', message.number)

-- The entries of what is held, with their processors, and the last of them.
local holder, last, reader, sound = {}, nil, nil, {}
for _, row in ipairs(message.tasks) do
  if type(row) == 'table' and is_id(row[1]) and is_whole(row[2], 0, 1e14) and is_id(row[3]) then
    sound[#sound + 1] = { row[1], row[2], row[3] }
    local record = record_assigned(row[1], worker.id, row[2])
    if record and not string.find(record.entry, CLAIMED, 1, true) then
      holder[record.entry], reader = row[3], row[3]
      if not last or is_before(last, record.entry) then last = record.entry end
    end
  else
    quarantine('expected a task, an attempt and a processor', row)
  end
end
-- Deliveries come in order: up to the last that is held, all had been made.
local delivered = last_delivered(worker.tasks)
while last and is_before(delivered, last) do
  local found = redis.call('XREADGROUP', 'GROUP', 'processors', reader, 'COUNT', 1, 'STREAMS', worker.tasks, '>')
  if not found then break end
  delivered = found[1][2][1][1]
end

local after = type(message.continued) == 'string' and message.continued or '-'
local pending = redis.call('XPENDING', worker.tasks, 'processors', after, '+', SLICE)
for _, item in ipairs(pending) do
  local at, consumer = item[1], item[2]
  after = '(' .. at
  if holder[at] then
    if holder[at] ~= consumer then redis.call('XCLAIM', worker.tasks, 'processors', holder[at], 0, at, 'JUSTID') end
  else
    local found = redis.call('XRANGE', worker.tasks, at, at)[1]
    local id = found and task_in(found)
    local record = id and record_of(id)
    local mine = record and record.worker == worker.id and record.entry == at
    local to = mine and transition(record.state, 'TaskReturned')
    if to then
      count('repaired:not_held', 1)
      give_back(worker.id, id, record, to, 'TaskReturned')
    elseif not mine then
      free_entry(worker.id, at)
    end
  end
end
if #pending == SLICE then
  redis.call('XADD', key_continued(), '*', 'held', cjson.encode({ version = 1, worker = worker.id, number = message.number, tasks = sound, continued = after }))
else
  redis.call('XADD', key_worker_control(worker.id), '*', 'settled', '{"number":' .. string.format('%d', message.number) .. '}')
end
settle()
return 'applied'
