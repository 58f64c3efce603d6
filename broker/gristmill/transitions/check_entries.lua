-- check_entries: one slice of a worker's task stream. An entry that its task's record does not name takes a place for
-- ever: it goes, and the worker is told to stop what it may be running. Likewise what the group lists and is not there.
-- KEYS: prefix
-- ARGV: worker_id from
-- RETURNS: checked
-- @include settle
local SLICE = 200
local worker = worker_of(worker_id)
local groups = worker and redis.pcall('XPENDING', worker.tasks, 'processors')
if not worker or worker.gone or groups.err then return 'checked' end
if from == '-' then
  for _, item in ipairs(redis.call('XPENDING', worker.tasks, 'processors', '-', '+', SLICE)) do
    if #redis.call('XRANGE', worker.tasks, item[1], item[1]) == 0 then
      count('repaired:pending', 1)
      free_entry(worker.id, item[1])
    end
  end
end
local found = redis.call('XRANGE', worker.tasks, from, '+', 'COUNT', SLICE)
for _, item in ipairs(found) do
  local id, attempt = string.match(item[2][2] or '', '^(%S+) (%d+)')
  local record = id and record_of(id)
  if not record or record.worker ~= worker.id or record.entry ~= item[1] then
    count('repaired:entry', 1)
    free_entry(worker.id, item[1])
    if id then redis.call('XADD', key_worker_control(worker.id), '*', 'cancel', cjson.encode({ version = 1, task = id, attempt = tonumber(attempt), request = 0 })) end
  end
end
settle()
if #found == SLICE then return '(' .. found[#found][1] end
return 'checked'
