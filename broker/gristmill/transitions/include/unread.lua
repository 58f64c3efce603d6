-- unread: takes back the newest entries that no processor has read, to their old place in their lanes.
-- With a lane, only those of that lane, among the newest LOOK entries.
-- @include entries
-- @include requeue
-- @include transition
-- @include record
local LOOK = 500
local function lane_in(id)
  return string.match(redis.call('HGET', key_task(id), 'place') or '', '^%S*')
end
-- Answers how many were taken.
local function return_unread(worker, most, lane)
  local taken = 0
  local after = last_delivered(worker.tasks)
  if not after then return 0 end
  for _, item in ipairs(redis.call('XREVRANGE', worker.tasks, '+', '(' .. after, 'COUNT', lane and LOOK or most)) do
    if taken >= most then break end
    local id = task_in(item)
    local wanted = not lane or lane_in(id) == lane
    local record = wanted and record_of(id)
    if wanted then
      free_entry(worker.id, item[1])
      taken = taken + 1
    end
    if record and record.worker == worker.id and record.entry == item[1] then
      local asked = record.state == 'running' and transition(record.state, 'BalanceTaskCancel') or record.state
      requeue(id, record, transition(asked, 'CancelConfirmCanceled'), ',null,null,null,null,{"event":"BalanceTaskCancel"}')
    end
  end
  write_freed()
  return taken
end
