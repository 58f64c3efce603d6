-- lane: a lane seen for the first time is made known to the workers that can serve it.
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
