-- settle: what every script that moves tasks does at its end, in this order: free entries, let dependents go on,
-- dispatch what can run now, put loads right, tell everybody.
-- @include entries
-- @include finish
-- @include dispatch
local function settle()
  write_freed()
  write_finished()
  for lane in pairs(waiting_lanes) do dispatch_lane(lane) end
  for _, worker in pairs(loaded) do
    if worker and worker.freed then dispatch_worker(worker) end
  end
  write_loads()
  write_changes()
end
