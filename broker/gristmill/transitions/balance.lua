-- balance: from workers over the mean to idle ones. Unread tasks move at once; of those that are held but not
-- started the worker is asked to give some back; an executing one never moves.
-- KEYS: prefix
-- ARGV: lane
-- RETURNS: balanced
-- @include clock
-- @include settle
-- @include unread
local LIMIT = 100
local idle, wanted = {}, 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key_load(lane), '-inf', '(1', 'LIMIT', 0, 16)) do
  local worker = worker_of(id)
  if worker and worker.open and worker.outstanding < worker.processors then
    idle[#idle + 1] = worker
    wanted = wanted + worker.processors - worker.outstanding
  end
end
if wanted == 0 or redis.call('EXISTS', key_ready(lane)) == 1 then return 'balanced' end
wanted = math.min(wanted, LIMIT)
local function ask_back(worker, most)
  local asked, started = 0, {}
  for _, item in ipairs(redis.call('XPENDING', worker.tasks, 'processors', '-', '+', 200)) do
    local at, consumer = item[1], item[2]
    if asked >= most then break end
    -- The oldest entry of each processor is the one that executes.
    if started[consumer] then
      local found = redis.call('XRANGE', worker.tasks, at, at)[1]
      local id = found and task_in(found)
      local record = id and record_of(id)
      if record and record.state == 'running' and record.entry == at then
        local request_number = last_request(id) + 1
        redis.call('HSET', key_task(id), 'state', transition('running', 'BalanceTaskCancel'), 'request', request_number)
        redis.call('XADD', key_worker_control(worker.id), '*', 'give_back', '{"version":1,"task":"' .. id .. '","attempt":' .. record.attempt .. ',"request":' .. request_number .. '}')
        change(id, 'running', 'balance_canceling', record.attempt, worker.id, record.name)
        asked = asked + 1
      end
    end
    started[consumer] = true
  end
  return asked
end
for _, id in ipairs(redis.call('ZREVRANGE', key_load(lane), 0, 15)) do
  local worker = worker_of(id)
  if wanted <= 0 then break end
  if worker and worker.open then
    local spare = worker.outstanding - worker.processors
    if spare > 0 then
      local moved = return_unread(worker, math.min(spare, wanted))
      wanted = wanted - moved
      if wanted > 0 and spare > moved then wanted = wanted - ask_back(worker, math.min(spare - moved, wanted)) end
    end
  end
end
settle()
return 'balanced'
