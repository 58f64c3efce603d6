-- run_alone: tasks that executed when two workers died wait in a lane of their own (`<lane>!`). Only a worker on
-- which nothing executes gets one, and nothing else meanwhile: when it dies too, everybody knows why. When none is idle,
-- one is emptied. At most half of the lane's workers at a time: workers may have died for reasons of their own.
-- Tasks that wait for others may stay: one of them may wait for the suspect. And one that runs alone may wait for others:
-- then its worker takes them.
-- KEYS: prefix
-- ARGV: lane
-- RETURNS: done
-- @include settle
-- @include busy
local EMPTIED = '-'
local suspects = key_ready(lane .. '!')
-- Then nobody gets anything.
local paused = redis.call('HEXISTS', key_namespace_facts(), 'paused') == 1
local function give(worker)
  local popped = redis.call('ZPOPMIN', suspects)
  local task = popped[1] and assign(worker, popped[1]) and popped[1] or EMPTIED
  redis.call('HSET', key_alone(), worker.id, lane .. ' ' .. task)
  return task ~= EMPTIED
end
local function reopen(worker)
  redis.call('HDEL', key_alone(), worker.id)
  if paused then
    redis.call('HSET', key_worker(worker.id), 'draining', 'paused')
  else
    redis.call('HDEL', key_worker(worker.id), 'draining')
    worker.open, worker.freed = true, true
  end
  touch(worker)
end
local function is_on(worker, task)
  local record = record_of(task)
  return record and record.worker == worker.id
end
local function empty(worker)
  redis.call('HSET', key_worker(worker.id), 'draining', 'alone')
  worker.open = false
  touch(worker)
  if not is_busy(worker) then return give(worker) end
  redis.call('HSET', key_alone(), worker.id, lane .. ' ' .. EMPTIED)
  return_unread(worker, 500)
  for _, name in ipairs(worker.lanes) do ask_back(worker, 100, name) end
end

local kept = redis.call('HGETALL', key_alone())
local reserved = 0
for i = 1, #kept, 2 do
  local own, task = string.match(kept[i + 1], '^(%S+) (%S+)$')
  if own == lane then
    local worker = worker_of(kept[i])
    if not worker or worker.gone or redis.call('HGET', key_worker(kept[i]), 'draining') ~= 'alone' then
      redis.call('HDEL', key_alone(), kept[i])
    elseif not is_busy(worker) then
      if not paused and give(worker) then reserved = reserved + 1 else reopen(worker) end
    elseif not is_on(worker, task) and redis.call('EXISTS', suspects) == 0 then
      reopen(worker)
    else
      reserved = reserved + 1
    end
  end
end
local most = math.max(1, math.floor((redis.call('ZCARD', key_load(lane)) + reserved) / 2))
local wanted = paused and 0 or math.min(most - reserved, redis.call('ZCARD', suspects))
for _, id in ipairs(redis.call('ZRANGE', key_load(lane), 0, 15)) do
  if wanted <= 0 then break end
  local worker = worker_of(id)
  if worker and worker.open and worker.processors > 0 then
    empty(worker)
    wanted = wanted - 1
  end
end
settle()
return 'done'
