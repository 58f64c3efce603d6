-- end_worker: one slice of moving on what a worker held that has left, or whose lease has ended.
-- Of a lost worker the oldest pending entry of each processor was executing: that one is charged with a death, unless
-- its task waited for another. What else the processors had read may be the true culprit: all of it is marked, so that
-- next time the oldest entry is.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate early newer malformed
-- @include clock
-- @include accept
-- @include settle
local SLICE = 100
local KEPT_SECONDS = 600
local PATIENCE_MS = 60000
local DEFAULT_MAX_DEATHS = 3
local message, word = decode()
if not message then return word end
if not is_id(message.worker) then return refuse_entry('expected worker') end
local why = is_id(message.reason) and message.reason or 'expired'
-- What the worker had reported counts: wait while an older entry lies in `results`. Of two streams only the time can be
-- compared, and an entry that only a newer scheduler understands may lie there for long.
local function milliseconds(at)
  return tonumber(string.match(at, '^%d+'))
end
local oldest = redis.call('XRANGE', key_results(), '-', '+', 'COUNT', 1)[1]
if oldest and milliseconds(oldest[1]) <= milliseconds(entry) and now_ms() - milliseconds(entry) < PATIENCE_MS then return 'early' end
if not accept() then return 'duplicate' end
local id, key = message.worker, key_worker(message.worker)
local tasks = key_worker_tasks(id)
local now = now_ms()
local first = not redis.call('HGET', key, 'gone')
local worker = worker_of(id)
redis.call('ZREM', key_workers(), id)
if worker then
  if first then redis.call('HSET', key, 'gone', why, 'processors', 0, 'room', 0, 'ended', now) end
  redis.call('EXPIRE', key, KEPT_SECONDS)
  worker.open, worker.room, worker.processors = false, 0, 0
  touch(worker)
end
-- What is known of the end, for the error of a task that has no deaths left.
local function story(task)
  local facts = redis.call('HMGET', key, 'host', 'pid', 'seen', 'heartbeat')
  local text = id
  if facts[1] then text = text .. ' on host ' .. facts[1] .. ' (pid ' .. facts[2] .. '), not heard for ' .. string.format('%.1f', (now - (facts[3] or now)) / 1000) .. ' s' end
  local _, beat = pcall(cjson.decode, facts[4] or '')
  if type(beat) ~= 'table' then return text end
  for _, processor in ipairs(type(beat.processors) == 'table' and beat.processors or {}) do
    if type(processor) == 'table' and processor.task == task and type(processor.rss_bytes) == 'number' then text = text .. string.format('; its processor used %.0f MiB of memory', processor.rss_bytes / 1048576) end
  end
  if type(beat.host_memory_percent) == 'number' then text = text .. string.format('; the host had %.0f %% of its memory in use', beat.host_memory_percent) end
  return text
end
local read = why ~= 'left' and last_delivered(tasks) or '0-0'
local function was_read(at)
  local ms, sequence = string.match(at, '^(%d+)-(%d+)$')
  local last_ms, last_sequence = string.match(read, '^(%d+)-(%d+)$')
  return tonumber(ms) < tonumber(last_ms) or (ms == last_ms and tonumber(sequence) <= tonumber(last_sequence))
end
local function move_on(at, task, executing)
  free_entry(id, at)
  local record = record_of(task)
  if not record or record.worker ~= id or record.entry ~= at then return end
  local to = transition(record.state, 'WorkerDisconnect')
  if not to then return end
  if is_terminal(to) then return finish(task, record, to, {}) end
  local deaths = 0
  if executing then
    deaths = redis.call('HINCRBY', key_task(task), 'deaths', 1)
    local most = tonumber(redis.call('HGET', key_task(task), 'max_deaths') or DEFAULT_MAX_DEATHS)
    if deaths >= most then
      local text = 'executing it has ended with the loss of ' .. deaths .. ' workers; the last was ' .. story(task)
      return finish(task, record, transition(to, 'SchedulerHasNoTask'), { payload = cjson.encode({ error = 'WorkerDiedError', message = text }), error = cjson.encode(text) })
    end
  end
  if was_read(at) then redis.call('HSET', key_task(task), 'suspect', 1, 'more', 1) end
  requeue(task, record, transition(to, 'SchedulerHasTask'), ',null,null,null,null,{"event":"WorkerDisconnect","deaths":' .. deaths .. '}')
end
local seen, waiting = {}, {}
for task in string.gmatch(redis.call('HGET', key, 'waiting') or '', '%S+') do waiting[task] = true end
if first and why ~= 'left' then
  -- A group that is gone lists nothing.
  local pending, consumers = redis.pcall('XPENDING', tasks, 'processors', '-', '+', 1000), {}
  for _, item in ipairs(pending) do
    if not consumers[item[2]] then
      consumers[item[2]] = true
      local found = redis.call('XRANGE', tasks, item[1], item[1])[1]
      if found then
        seen[item[1]] = true
        move_on(item[1], task_in(found), not waiting[task_in(found)])
      end
    end
  end
end
for _, found in ipairs(redis.call('XRANGE', tasks, '-', '+', 'COUNT', SLICE)) do
  if not seen[found[1]] then move_on(found[1], task_in(found), false) end
end
-- Claimed tasks have no entry; of those on one processor only the last was executing, the others waited.
for _, task in ipairs(redis.call('SPOP', key_worker_claimed(id), SLICE)) do
  local record = record_of(task)
  if record and record.worker == id and string.find(record.entry, CLAIMED, 1, true) then move_on(record.entry, task, why ~= 'left' and not waiting[task]) end
end
settle()
if redis.call('XLEN', tasks) > 0 or redis.call('EXISTS', key_worker_claimed(id)) == 1 then
  redis.call('XADD', key_continued(), '*', 'end_worker', cjson.encode({ version = 1, worker = id, reason = why }))
else
  redis.call('DEL', tasks, key_worker_control(id))
  if why ~= 'left' then
    redis.call('XADD', key_worker_control(id), '*', 'unknown', '{}')
    redis.call('EXPIRE', key_worker_control(id), KEPT_SECONDS)
  end
end
return 'applied'
