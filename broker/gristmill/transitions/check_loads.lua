-- check_loads: workers without a record are taken off the load of their lanes: dispatch looks at the first few only.
-- KEYS: prefix
-- ARGV: lanes
-- RETURNS: checked
for lane in string.gmatch(lanes, '%S+') do
  for _, worker in ipairs(redis.call('ZRANGE', key_load(lane), 0, 999)) do
    if redis.call('EXISTS', key_worker(worker)) == 0 then
      redis.call('HINCRBY', key_counts(), 'repaired:load', 1)
      redis.call('ZREM', key_load(lane), worker)
    end
  end
end
return 'checked'
