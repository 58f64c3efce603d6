-- dispatch: from the ready lanes to workers with room. Never a scan over workers or tasks.
-- @include assign
local DISPATCH_LIMIT = 200
-- How far a lane has come: a client that has fallen behind starts from there (see submit).
local function note_reached(lane, order)
  local reached = tonumber(redis.call('HGET', key_lanes(), lane) or '0')
  if order > reached then redis.call('HSET', key_lanes(), lane, order) end
end
-- Spreads what waits in a lane over the workers that have room; free processors come before queues.
local function dispatch_lane(lane)
  local left, reached, more = DISPATCH_LIMIT, nil, true
  while more do
    local workers = workers_with_room(lane)
    local room, free = 0, 0
    for _, worker in ipairs(workers) do
      room = room + worker.room - worker.outstanding
      free = free + math.max(0, worker.processors - worker.outstanding)
    end
    if workers.more and free > 0 then room = free end
    room = math.min(room, left)
    if room == 0 then break end
    local popped = redis.call('ZPOPMIN', key_ready(lane), room)
    for i = 1, #popped, 2 do
      local order = assign(least_loaded(workers), popped[i])
      if order and (not reached or order > reached) then reached = order end
    end
    left, more = left - room, workers.more and #popped == 2 * room
    if more then write_loads() end
  end
  if reached then note_reached(lane, reached) end
end
-- Fills one worker that has got room: of several lanes from the one whose first task is first.
local function dispatch_worker(worker)
  if not worker.open or worker.processors == 0 then return end
  local room = math.min(worker.room - worker.outstanding, DISPATCH_LIMIT)
  if room <= 0 then return end
  if #worker.lanes == 1 then
    local lane = worker.lanes[1]
    local popped = redis.call('ZPOPMIN', key_ready(lane), room)
    local reached
    for i = 1, #popped, 2 do
      local order = assign(worker, popped[i])
      if order and (not reached or order > reached) then reached = order end
    end
    if reached then note_reached(lane, reached) end
    return
  end
  local first, reached = {}, {}
  local function look(lane)
    local head = redis.call('ZRANGE', key_ready(lane), 0, 0, 'WITHSCORES')
    first[lane] = head[1] and { head[1], tonumber(head[2]) } or nil
  end
  for _, lane in ipairs(worker.lanes) do look(lane) end
  while room > 0 do
    local best
    for lane, head in pairs(first) do
      if not best or head[2] < first[best][2] then best = lane end
    end
    if not best then break end
    local id = first[best][1]
    redis.call('ZREM', key_ready(best), id)
    local order = assign(worker, id)
    if order and order > (reached[best] or 0) then reached[best] = order end
    look(best)
    room = room - 1
  end
  for lane, order in pairs(reached) do note_reached(lane, order) end
end
