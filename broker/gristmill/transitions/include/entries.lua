-- entries: takes entries off a worker's task stream. XACK goes with XDEL, or the group would list them for ever.
-- @include load
local FEW = 4
local freed = {}
local function free_entry(worker, at)
  local list = freed[worker]
  if not list then
    list = {}
    freed[worker] = list
  end
  list[#list + 1] = at
end
-- Nil when there is no stream or no group: an error lists nothing.
local function last_delivered(tasks)
  for _, group in ipairs(redis.pcall('XINFO', 'GROUPS', tasks)) do
    for i = 1, #group, 2 do
      if group[i] == 'last-delivered-id' then return group[i + 1] end
    end
  end
end
-- Removes entries that a processor has read. Mostly they are the oldest of the stream, and cutting it there costs a
-- twentieth of deleting them one by one: all before the oldest pending entry are finished, and when none is pending
-- all that were delivered. Answers how many went.
local function cut_off(tasks)
  local oldest = redis.pcall('XPENDING', tasks, 'processors')[2]
  if not oldest then
    local ms, sequence = string.match(last_delivered(tasks) or '0-0', '^(%d+)-(%d+)$')
    oldest = ms .. '-' .. string.format('%d', sequence + 1)
  end
  return redis.call('XTRIM', tasks, 'MINID', oldest)
end
-- Writes what `free_entry` collected, and puts the workers' loads right. A worker without a record is passed over.
-- `read` says that processors have read them all; a few are deleted without looking where to cut.
local function write_freed(read)
  for id, list in pairs(freed) do
    local worker = worker_of(id)
    local tasks = key_worker_tasks(id)
    redis.call('XACK', tasks, 'processors', unpack(list))
    local removed = read and #list > FEW and cut_off(tasks) or 0
    if removed < #list then removed = removed + redis.call('XDEL', tasks, unpack(list)) end
    if worker then
      worker.outstanding = worker.outstanding - removed
      worker.freed = true
      touch(worker)
    end
  end
  freed = {}
end
-- The id of the task in an entry.
local function task_in(item)
  return string.match(item[2][2], '^%S*')
end
-- Whether no processor has read the entry yet. Then XDEL is final: nobody reads between two commands of a script.
local function is_unread(worker, at)
  local pending = redis.pcall('XPENDING', key_worker_tasks(worker), 'processors', at, at, 1)
  return pending.err ~= nil or #pending == 0
end
