-- requeue: an assigned task goes back to its lane, to its old place.
-- @include changes
-- @include lane
-- @include record
local PRIORITY_STEP = 4398046511104
local waiting_lanes = {}
local function enter_lane(id, place, priority, deaths)
  local lane, order = string.match(place, '^(%S+) (%d+)$')
  -- After two deaths it runs alone (run_alone).
  local suspect = tonumber(deaths or 0) >= 2
  local queue = suspect and lane .. '!' or lane
  redis.call('ZADD', key_ready(queue), order - (priority or 0) * PRIORITY_STEP, id)
  if not waiting_lanes[lane] then know_lane(lane) end
  if not suspect then waiting_lanes[lane] = true end
end
local function enqueue(id)
  enter_lane(id, unpack(redis.call('HMGET', key_task(id), 'place', 'priority', 'deaths')))
end
-- Clients made inside a task end with that attempt.
local function end_nested(nested)
  for client in string.gmatch(nested or '', '%S+') do
    redis.call('XADD', key_continued(), '*', 'end_client', '{"version":1,"client":"' .. client .. '"}')
  end
end
local function unassign(id, record, to)
  if string.find(record.entry, CLAIMED, 1, true) then redis.call('SREM', key_worker_claimed(record.worker), id) end
  end_nested(redis.call('HGET', key_task(id), 'nested'))
  redis.call('HSET', key_task(id), 'state', to, 'attempt', record.attempt)
  redis.call('HDEL', key_task(id), 'assignment', 'request', 'nested')
end
-- `why` is JSON text of further columns for the story: what has brought it back.
local function requeue(id, record, to, why)
  unassign(id, record, to)
  enqueue(id)
  change(id, record.state, to, record.attempt, nil, record.name, why)
end
-- A retry that is not yet due waits in `delayed`; a duty brings it back.
local function delay_task(id, record, to, due, why)
  unassign(id, record, to)
  redis.call('ZADD', key_delayed(), due, id)
  change(id, record.state, to, record.attempt, nil, record.name, why)
end
