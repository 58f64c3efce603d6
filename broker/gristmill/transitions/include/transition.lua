-- transition: the next state by the table of states.py, or nil: refused, and counted.
-- @include changes
-- @include states
local function transition(state, event)
  local to = next_state(state, event)
  if not to then count('refused:' .. tostring(state) .. ':' .. event, 1) end
  return to
end
