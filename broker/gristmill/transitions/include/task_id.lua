-- task_id: whether what comes from outside is the id of a task: that of its client, a dot, a number.
-- @include accept
local function is_task(value)
  return is_id(value) and string.find(value, '^[^.]+%.%d+$') ~= nil
end
