-- balance_lane: from workers over the mean to idle ones. Unread tasks move at once; of those that are held but not
-- started the worker is asked to give some back; an executing one never moves. Only tasks of the lane move: an idle
-- worker need not serve what else a busy one holds.
-- @include unread
-- @include dispatch
local BALANCE_LIMIT = 100
-- What a worker is expected to have done before the answer comes is not worth the asking.
local WORTH_US = 5000
local function ask_back(worker, most, lane)
  local asked, started = 0, {}
  local pending = redis.pcall('XPENDING', worker.tasks, 'processors', '-', '+', 200)
  if pending.err then return 0 end
  for _, item in ipairs(pending) do
    local at, consumer = item[1], item[2]
    if asked >= most then break end
    -- The oldest entry of each processor is the one that executes.
    if started[consumer] then
      local found = redis.call('XRANGE', worker.tasks, at, at)[1]
      local id = found and task_in(found)
      local record = id and lane_in(id) == lane and record_of(id)
      if record and record.state == 'running' and record.entry == at then
        local number = last_request(id) + 1
        redis.call('HSET', key_task(id), 'state', transition('running', 'BalanceTaskCancel'), 'request', number)
        redis.call('XADD', key_worker_control(worker.id), '*', 'give_back', '{"version":1,"task":"' .. id .. '","attempt":' .. record.attempt .. ',"request":' .. number .. '}')
        change(id, 'running', 'balance_canceling', record.attempt, worker.id, record.name)
        asked = asked + 1
      end
    end
    started[consumer] = true
  end
  return asked
end
-- Whether the tasks that a worker holds beyond those that execute will keep it busy. Only a guess: among short tasks one
-- may be long, so that the duty does not go by it.
local function is_worth(worker)
  return worker.service_us < 0 or (worker.outstanding - worker.processors) * worker.service_us >= WORTH_US * worker.processors
end
local function balance_lane(lane, guess)
  local busiest = redis.call('ZREVRANGE', key_load(lane), 0, 0, 'WITHSCORES')
  if not busiest[1] or tonumber(busiest[2]) <= 1 then return end
  local wanted = 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key_load(lane), '-inf', '(1', 'LIMIT', 0, 16)) do
    local worker = worker_of(id)
    if worker and worker.open then wanted = wanted + worker.processors - worker.outstanding end
  end
  -- What was asked for before is on its way.
  wanted = wanted - tonumber(redis.call('HGET', key_counts(), 'state:balance_canceling') or 0)
  if wanted <= 0 or redis.call('EXISTS', key_ready(lane)) == 1 then return end
  wanted = math.min(wanted, BALANCE_LIMIT)
  for _, id in ipairs(redis.call('ZREVRANGE', key_load(lane), 0, 15)) do
    local worker = worker_of(id)
    if wanted <= 0 then break end
    local spare = worker and worker.open and worker.outstanding - worker.processors or 0
    if spare > 0 and not (guess and not is_worth(worker)) then
      local moved = return_unread(worker, math.min(spare, wanted), lane)
      wanted = wanted - moved
      if wanted > 0 and spare > moved then wanted = wanted - ask_back(worker, math.min(spare - moved, wanted), lane) end
    end
  end
end
-- At once when a worker has nothing to do and nothing waits; what is left then is for the duty.
local function balance_towards(worker)
  if not worker.open or worker.processors == 0 or worker.outstanding > 0 then return end
  write_loads()
  for _, lane in ipairs(worker.lanes) do balance_lane(lane, true) end
end
