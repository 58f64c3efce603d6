-- register_worker: creates a worker's record and its streams, and tells it so. Only this script creates them.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed refused
-- @include clock
-- @include accept
-- @include changes
-- @include lane
local message, word = decode()
if not message then return word end
if not is_id(message.worker) or not is_whole(message.concurrency, 1, 1e5) or not is_whole(message.queue_size, 1, 1e6) or not is_whole(message.lease_ms, 1, 1e10) or type(message.capabilities) ~= 'table' then
  return refuse_entry('expected worker, concurrency, queue_size, capabilities and lease_ms')
end
for name in pairs(message.capabilities) do
  if not is_id(name) then return refuse_entry('expected capability names of letters, digits, "-", "_", "." and "|"') end
end
local readable, capabilities = pcall(cjson.encode, message.capabilities)
if not readable then return refuse_entry('expected capabilities with numbers') end
if not accept() then return 'duplicate' end
count('requests:worker', 1)
local worker, key = message.worker, key_worker(message.worker)
local now = now_ms()
local gone = redis.call('HGET', key, 'gone')
if gone then
  redis.call('XADD', key_worker_control(worker), '*', 'unknown', '{}')
  redis.call('EXPIRE', key_worker_control(worker), 60)
  write_changes()
  return 'refused'
end
if redis.call('EXISTS', key) == 0 then
  local names = {}
  for name in pairs(message.capabilities) do names[#names + 1] = name end
  table.sort(names)
  local offered, lanes = table.concat(names, ','), {}
  for _, lane in ipairs(redis.call('HKEYS', key_lanes())) do
    if serves(offered, lane) then lanes[#lanes + 1] = lane end
  end
  local fields = { 'concurrency', message.concurrency, 'queue_size', message.queue_size, 'queue_limit', message.queue_size, 'lease_ms', message.lease_ms, 'capabilities', offered, 'capability_values', capabilities, 'lanes', table.concat(lanes, ' '), 'processors', 0, 'queue', 1, 'room', 0, 'service_us', -1, 'registered', now, 'seen', now }
  if redis.call('HEXISTS', key_namespace_facts(), 'paused') == 1 then
    fields[#fields + 1] = 'draining'
    fields[#fields + 1] = 'paused'
  end
  for _, name in ipairs({ 'name', 'host', 'pid', 'python', 'release' }) do
    fields[#fields + 1] = name
    fields[#fields + 1] = cut(tostring(message[name] or ''), 200)
  end
  redis.call('DEL', key_worker_tasks(worker), key_worker_control(worker))
  redis.call('HSET', key, unpack(fields))
  redis.call('XGROUP', 'CREATE', key_worker_tasks(worker), 'processors', '0', 'MKSTREAM')
end
redis.call('ZADD', key_workers(), observed_ms() + message.lease_ms, worker)
redis.call('XADD', key_worker_control(worker), '*', 'registered', '{}')
write_changes()
return 'applied'
