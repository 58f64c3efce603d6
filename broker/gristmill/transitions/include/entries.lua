-- entries: takes entries off a worker's task stream. XACK goes with XDEL, or the group would list them for ever.
-- @include load
local freed = {}
local function free_entry(worker, at)
  local list = freed[worker]
  if not list then
    list = {}
    freed[worker] = list
  end
  list[#list + 1] = at
end
-- Writes what `free_entry` collected, and puts the workers' loads right. A worker without a record is passed over.
local function write_freed()
  for id, list in pairs(freed) do
    local tasks = key_worker_tasks(id)
    redis.call('XACK', tasks, 'processors', unpack(list))
    redis.call('XDEL', tasks, unpack(list))
    local worker = worker_of(id)
    if worker then
      worker.outstanding = redis.call('XLEN', tasks)
      worker.freed = true
      touch(worker)
    end
  end
  freed = {}
end
-- Whether no processor has read the entry yet. Then XDEL is final: nobody reads between two commands of a script.
local function is_unread(worker, at)
  local pending = redis.pcall('XPENDING', key_worker_tasks(worker), 'processors', at, at, 1)
  return pending.err ~= nil or #pending == 0
end
