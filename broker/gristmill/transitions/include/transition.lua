-- transition: the next state by the table of states.py, or nil: refused, and counted.
-- @include changes
-- @include states
local function transition(state, event)
  local row = NEXT[state]
  local to = row and row[event]
  if not to then count('refused:' .. tostring(state) .. ':' .. event, 1) end
  return to
end
