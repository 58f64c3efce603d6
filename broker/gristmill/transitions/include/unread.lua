-- unread: takes back the newest entries that no processor has read, to their old place in their lanes.
-- @include entries
-- @include requeue
-- @include transition
-- @include record
local function last_delivered(tasks)
  local groups = redis.pcall('XINFO', 'GROUPS', tasks)
  if groups.err then return end
  for _, group in ipairs(groups) do
    for i = 1, #group, 2 do
      if group[i] == 'last-delivered-id' then return group[i + 1] end
    end
  end
end
-- Answers how many were taken.
local function return_unread(worker, most)
  local taken = 0
  local after = last_delivered(worker.tasks)
  if not after then return 0 end
  for _, item in ipairs(redis.call('XREVRANGE', worker.tasks, '+', '(' .. after, 'COUNT', most)) do
    local id = task_in(item)
    local record = record_of(id)
    free_entry(worker.id, item[1])
    taken = taken + 1
    if record and record.worker == worker.id and record.entry == item[1] then
      local asked = record.state == 'running' and transition(record.state, 'BalanceTaskCancel') or record.state
      requeue(id, record, transition(asked, 'CancelConfirmCanceled'))
    end
  end
  write_freed()
  return taken
end
