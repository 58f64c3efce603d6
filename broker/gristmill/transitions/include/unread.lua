-- unread: takes back the newest entries that no processor has read, to their old place in their lanes.
-- @include entries
-- @include requeue
-- @include transition
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
    local id = item[2][2]
    local facts = redis.call('HMGET', key_task(id), 'state', 'attempt', 'worker', 'entry', 'name')
    free_entry(worker.id, item[1])
    taken = taken + 1
    if facts[3] == worker.id and facts[4] == item[1] then
      if facts[1] == 'running' then
        requeue(id, 'running', transition(transition('running', 'BalanceTaskCancel'), 'CancelConfirmCanceled'), tonumber(facts[2]), facts[5])
      elseif facts[1] == 'balance_canceling' then
        requeue(id, facts[1], transition(facts[1], 'CancelConfirmCanceled'), tonumber(facts[2]), facts[5])
      end
    end
  end
  write_freed()
  return taken
end
