-- depend: more of what a task needs, for one that needs more than a batch may carry. The task came in a batch, marked as
-- incomplete; its needs come in numbered parts, and with the last it waits for nothing but them.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate early newer malformed
-- @include accept
-- @include settle
-- @include needs
local MOST_NEEDS = 1000
local message, word = decode()
if not message then return word end
local client, id, part = message.client, message.task, message.part
if not is_id(id) or string.match(id, '^([^.]+)%.%d+$') ~= client or not is_whole(part, 1, 1e9) or type(message.dependencies) ~= 'table' or #message.dependencies > MOST_NEEDS then
  return refuse_entry('expected client, task, part and dependencies')
end
for _, dependency in ipairs(message.dependencies) do
  if not is_id(dependency) then return refuse_entry('expected ids of tasks in dependencies') end
end
local facts = redis.call('HMGET', key_task(id), 'state', 'incomplete', 'needs')
local expected = tonumber(facts[2])
if not batch_applied(client, message.after) or (expected and expected < part and not batch_applied(client, nil, true)) then return 'early' end
if not accept() then return 'duplicate' end
count('requests:depend', 1)
if facts[1] ~= 'inactive' or expected ~= part then
  -- It has ended meanwhile, or this part has been applied.
  count('stale:depend', 1)
  write_changes()
  return 'applied'
end
local needs, seen = {}, {}
for dependency in string.gmatch(facts[3] or '', '%S+') do seen[dependency] = true end
for _, dependency in ipairs(message.dependencies) do
  if not seen[dependency] then needs[#needs + 1] = dependency end
  seen[dependency] = true
end
local left, ended_one, gone = wait_for(id, needs)
write_needed()
if left then
  if #needs > 0 then redis.call('HSET', key_task(id), 'needs', facts[3] .. ' ' .. table.concat(needs, ' ')) end
  if message.last then
    left = left - 1
    redis.call('HDEL', key_task(id), 'incomplete')
  else
    redis.call('HSET', key_task(id), 'incomplete', part + 1)
  end
  if redis.call('HINCRBY', key_task(id), 'dependencies', left) == 0 then enqueue(id) end
elseif ended_one then
  local record = record_of(id)
  record.state = 'inactive'
  local state = redis.call('HGET', key_task(ended_one), 'state')
  local canceled = state == 'canceled' or state == 'canceled_not_found'
  finish(id, record, canceled and 'canceled' or 'failed', { payload = redis.call('GET', key_value(ended_one)) or 'null', because = ended_one })
else
  -- As if it had never come: its client sends it again with the values.
  local record = record_of(id)
  notify(client, 'missing', cjson.encode({ tasks = { { tonumber(string.match(id, '%d+$')), gone } } }))
  count('state:' .. record.state, -1)
  local more = redis.call('HMGET', key_task(id), 'payload', 'object')
  if more[1] then doomed[#doomed + 1] = key_payload(id) end
  if more[2] then free_object(more[2]) end
  record.state = 'inactive'
  local held = {}
  for dependency in string.gmatch(facts[3], '%S+') do held[#held + 1] = '"' .. dependency .. '"' end
  for from = 1, #held, MOST_NEEDS do
    redis.call('XADD', key_continued(), '*', 'drop_uses', '{"version":1,"task":"' .. id .. '","dependencies":[' .. table.concat(held, ',', from, math.min(from + MOST_NEEDS - 1, #held)) .. ']}')
  end
  forget(id)
end
settle()
return 'applied'
