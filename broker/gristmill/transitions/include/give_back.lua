-- give_back: what a worker has not run, or has stopped, goes back to its lane, or ends when it was being cancelled.
-- @include entries
-- @include finish
local function give_back(worker, id, record, to, event)
  free_entry(worker, record.entry)
  if to == 'inactive' then return requeue(id, record, to, ',null,null,null,null,{"event":"' .. event .. '"}') end
  finish(id, record, to, {})
end
