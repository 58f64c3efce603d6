-- room: how many tasks a worker may have outstanding: one per processor, and a queue of about 0.2 s of its measured
-- service time, from 1 to --queue-size (`queue_limit`; 0 while tasks wait for tasks, see `processors`). The queue at
-- most doubles with each batch of outcomes, and shrinks at once;
-- what is unread beyond twice the room then goes back to its lane (twice, so that tasks of changing length do not go
-- to and fro). So long tasks stay in `ready`, where priority and balance reach them, and short ones flow in bulk.
-- @include unread
local QUEUE_US = 200000
local MEMORY_TASKS = 50
-- Tasks that take ten times as long as those before, and not just a few milliseconds, are another kind of work.
local CHANGE, CHANGE_US = 10, 20000
local function shrink(worker, bearable)
  if worker.outstanding <= bearable then return end
  return_unread(worker, math.min(worker.outstanding - worker.room, 500))
end
local function set_room(worker, mean_us, tasks)
  local service = worker.service_us
  -- A mean over the last tasks, some 50 of them: a hundred short ones in one batch do not forget the long ones.
  local changed = mean_us > CHANGE_US and mean_us > CHANGE * service
  if service < 0 or changed then service = mean_us else service = service + (mean_us - service) * tasks / (tasks + MEMORY_TASKS) end
  local wanted = math.floor(QUEUE_US / math.max(service, 1) * worker.processors)
  wanted = math.min(math.max(1, math.min(wanted, worker.queue * 2)), worker.queue_limit)
  service = math.floor(service)
  local room = worker.processors > 0 and worker.processors + wanted or 0
  redis.call('HSET', key_worker(worker.id), 'queue', wanted, 'service_us', service, 'room', room)
  worker.queue, worker.service_us = wanted, service
  if room ~= worker.room then
    worker.room = room
    touch(worker)
    shrink(worker, changed and room or 2 * room)
  end
end
