-- settle: what every script that moves tasks does at its end, in this order: free entries, let dependents go on,
-- dispatch what can run now, find work for workers that have fallen idle, put loads right, tell everybody.
-- @include entries
-- @include finish
-- @include dispatch
-- @include balance_lane
local function dispatch_waiting()
  for lane in pairs(waiting_lanes) do dispatch_lane(lane) end
  waiting_lanes = {}
end
local function settle()
  write_freed()
  write_finished()
  dispatch_waiting()
  local fallen_free = {}
  for _, worker in pairs(loaded) do
    if worker and worker.freed then fallen_free[#fallen_free + 1] = worker end
  end
  for _, worker in ipairs(fallen_free) do dispatch_worker(worker) end
  for _, worker in ipairs(fallen_free) do balance_towards(worker) end
  dispatch_waiting()
  write_loads()
  write_changes()
end
