-- load: workers as this script knows them, and their place in the load sets of their lanes.
-- A worker's score is its outstanding tasks per processor. Each script counts from XLEN, so that it cannot drift;
-- a full worker stands 1,000,000 higher: dispatch stops before it, balance starts from there.
local FULL = 1000000
local loaded = {}
local function worker_of(id)
  local worker = loaded[id]
  if worker == nil then
    local facts = redis.call('HMGET', key_worker(id), 'processors', 'room', 'lanes', 'draining', 'gone', 'queue', 'queue_limit', 'service_us')
    if facts[1] then
      worker = { id = id, processors = tonumber(facts[1]), room = tonumber(facts[2]), lanes = {}, open = not facts[4] and not facts[5], gone = facts[5], queue = tonumber(facts[6]), queue_limit = tonumber(facts[7] or 1000), service_us = tonumber(facts[8]), tasks = key_worker_tasks(id) }
      for lane in string.gmatch(facts[3] or '', '%S+') do worker.lanes[#worker.lanes + 1] = lane end
      worker.outstanding = redis.call('XLEN', worker.tasks)
    else
      worker = false
    end
    loaded[id] = worker
  end
  return worker
end
local function touch(worker)
  worker.touched = true
end
local function write_loads()
  for _, worker in pairs(loaded) do
    if worker and worker.touched then
      worker.touched = false
      if worker.open and worker.processors > 0 then
        local score = worker.outstanding / worker.processors
        if worker.outstanding >= worker.room then score = score + FULL end
        for _, lane in ipairs(worker.lanes) do redis.call('ZADD', key_load(lane), score, worker.id) end
      else
        for _, lane in ipairs(worker.lanes) do redis.call('ZREM', key_load(lane), worker.id) end
      end
    end
  end
end
-- Up to 16 workers of the lane that have room, the least loaded first; not more than there are tasks, if that is known.
-- `more` says that there may be others, `free` that the first has a free processor: see `next_worker`.
local AT_ONCE = 16
local function workers_with_room(lane, tasks)
  local ids = redis.call('ZRANGEBYSCORE', key_load(lane), '-inf', '(' .. FULL, 'LIMIT', 0, math.min(tasks or AT_ONCE, AT_ONCE))
  local found = { lane = lane, more = #ids == AT_ONCE }
  for _, id in ipairs(ids) do
    local worker = worker_of(id)
    if worker and worker.open and worker.outstanding < worker.room then found[#found + 1] = worker end
  end
  found.free = found[1] and found[1].outstanding < found[1].processors
  return found
end
-- The least loaded of `workers` that still has room, or nil.
local function least_loaded(workers)
  local best, lowest
  for _, worker in ipairs(workers) do
    if worker.outstanding < worker.room then
      local load = worker.outstanding / worker.processors
      if not best or load < lowest then best, lowest = worker, load end
    end
  end
  return best
end
-- The same, and the list to go on with: when all on it have room no more, or no free processor, others may.
local function next_worker(workers)
  local best = least_loaded(workers)
  if not workers.more or (best and not (workers.free and best.outstanding >= best.processors)) then return best, workers end
  write_loads()
  workers = workers_with_room(workers.lane)
  return least_loaded(workers), workers
end
