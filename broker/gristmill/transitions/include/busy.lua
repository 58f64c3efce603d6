-- busy: whether anything executes on a worker, or will without a further word: tasks that wait for others do not, and of
-- those on one processor (claimed ones have no entry) only the last may.
-- @include load
local function is_busy(worker)
  local facts = redis.call('HMGET', key_worker(worker.id), 'suspended', 'waiting')
  if worker.outstanding > tonumber(facts[1] or '0') then return true end
  local waiting = ' ' .. (facts[2] or '') .. ' '
  for _, task in ipairs(redis.call('SMEMBERS', key_worker_claimed(worker.id))) do
    if not string.find(waiting, ' ' .. task .. ' ', 1, true) then return true end
  end
  return false
end
