-- retire_lane: forgets a lane that has stood still: nothing waits there and its order is what it was long ago.
-- A task that comes back to it makes it known again. How far the lanes had come that are gone is kept (see lane).
-- KEYS: prefix
-- ARGV: lane order
-- RETURNS: retired kept
-- @include load
if redis.call('HGET', key_lanes(), lane) ~= order or redis.call('EXISTS', key_ready(lane), key_ready(lane .. '!')) > 0 then return 'kept' end
for _, id in ipairs(redis.call('ZRANGE', key_workers(), 0, -1)) do
  local worker = worker_of(id)
  if worker then
    local others = {}
    for _, name in ipairs(worker.lanes) do
      if name ~= lane then others[#others + 1] = name end
    end
    if #others < #worker.lanes then redis.call('HSET', key_worker(id), 'lanes', table.concat(others, ' ')) end
  end
end
if (tonumber(order) or 0) > tonumber(redis.call('HGET', key_namespace_facts(), 'reached') or '0') then redis.call('HSET', key_namespace_facts(), 'reached', order) end
redis.call('HDEL', key_lanes(), lane)
redis.call('DEL', key_load(lane))
return 'retired'
