-- processors: how many of a worker's processors take tasks. One whose task waits for other tasks is counted as well:
-- that task is among the outstanding ones, so both sides of every comparison have it, and it is out of the load.
-- While tasks wait the worker has no queue: what is ready stays in its lane, where the deepest (of a higher priority)
-- come first. Agents number what they say of this; what is older than the record knows changes nothing.
-- @include accept
-- @include room
-- What a worker says of tasks that wait, in a message of its own or in a beat; none of it is an answer too.
local function is_sound(message)
  for _, number in ipairs({ message.suspended or 0, message.suspensions or 0 }) do
    if not is_whole(number, 0, 1e14) then return false end
  end
  if message.waiting == nil then return true end
  if type(message.waiting) ~= 'table' or #message.waiting > 1e5 then return false end
  for _, id in ipairs(message.waiting) do
    if not is_id(id) then return false end
  end
  return true
end
local function set_processors(worker, processors, message)
  local facts = redis.call('HMGET', key_worker(worker.id), 'queue_size', 'suspended', 'suspensions')
  local before, suspended = tonumber(facts[2] or '0'), tonumber(message.suspended) or 0
  local number = tonumber(message.suspensions) or 0
  if number < tonumber(facts[3] or '0') then return shrink(worker, 2 * worker.room) end
  if suspended ~= before then
    if suspended > 0 then worker.queue, worker.queue_limit = 0, 0 else worker.queue, worker.queue_limit = 1, tonumber(facts[1]) end
    redis.call('HSET', key_worker(worker.id), 'suspended', suspended, 'queue', worker.queue, 'queue_limit', worker.queue_limit)
  end
  if number > 0 then redis.call('HSET', key_worker(worker.id), 'suspensions', number) end
  if message.waiting then redis.call('HSET', key_worker(worker.id), 'waiting', table.concat(message.waiting, ' ')) end
  local room = processors > 0 and processors + worker.queue or 0
  if processors == worker.processors and suspended == before then return shrink(worker, 2 * worker.room) end
  worker.processors, worker.room = processors, room
  redis.call('HSET', key_worker(worker.id), 'processors', processors, 'room', room)
  touch(worker)
  shrink(worker, room)
end
