-- lane: a lane seen for the first time is made known to the workers that can serve it. It begins where the others are,
-- and those that were retired: clients number their tasks over all lanes, and who comes to it with a low number must not
-- be first for as long as the others have been there.
-- @include load
local function serves(capabilities, lane)
  local offered = ',' .. capabilities .. ','
  for name in string.gmatch(lane, '[^,]+') do
    if not string.find(offered, ',' .. name .. ',', 1, true) then return false end
  end
  return true
end
local function know_lane(lane)
  if redis.call('HSETNX', key_lanes(), lane, 0) == 0 then return end
  local reached = tonumber(redis.call('HGET', key_namespace_facts(), 'reached') or '0')
  for _, order in ipairs(redis.call('HVALS', key_lanes())) do reached = math.max(reached, tonumber(order) or 0) end
  redis.call('HSET', key_lanes(), lane, reached)
  for _, id in ipairs(redis.call('ZRANGE', key_workers(), 0, -1)) do
    local capabilities = redis.call('HGET', key_worker(id), 'capabilities')
    local worker = worker_of(id)
    if worker and capabilities and serves(capabilities, lane) then
      worker.lanes[#worker.lanes + 1] = lane
      redis.call('HSET', key_worker(id), 'lanes', table.concat(worker.lanes, ' '))
      touch(worker)
    end
  end
  write_loads()
end
