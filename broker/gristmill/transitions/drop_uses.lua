-- drop_uses: the next slice of what a task has needed that has ended: its values may go.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed
-- @include accept
-- @include settle
local message, word = decode()
if not message then return word end
if not is_id(message.task) or type(message.dependencies) ~= 'table' or #message.dependencies > 1000 then return refuse_entry('expected task and dependencies') end
for _, dependency in ipairs(message.dependencies) do
  if not is_id(dependency) then return refuse_entry('expected ids of tasks in dependencies') end
end
if not accept() then return 'duplicate' end
for _, dependency in ipairs(message.dependencies) do
  redis.call('SREM', key_dependents(dependency), message.task)
  drop_use(dependency)
end
settle()
return 'applied'
