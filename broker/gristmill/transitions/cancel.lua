-- cancel: cancels tasks, for their client or for a person.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate early newer malformed
-- @include accept
-- @include task_id
-- @include settle
-- @include cancel_task
-- @include on_its_way
local MOST_ORDERED = 100
local message, word = decode()
if not message then return word end
-- @include audit
if type(message.tasks) ~= 'table' then return refuse_entry('expected tasks') end
local client = message.client ~= '' and message.client or nil
if client and not is_id(client) then return refuse_entry('expected a client id') end
if client and not batch_applied(client, message.after) then return 'early' end
-- Who cancels by id cannot say which batch that needs.
for at = 1, client and 0 or math.min(#message.tasks, MOST_ORDERED) do
  if is_task(message.tasks[at]) and is_on_its_way(message.tasks[at]) then return 'early' end
end
if not accept() then return 'duplicate' end
count('requests:cancel', 1)
if is_order() then
  for at = 1, math.min(#message.tasks, MOST_ORDERED) do
    if is_id(message.tasks[at]) then audit('cancel', message.tasks[at], redis.call('HGET', key_task(message.tasks[at]), 'state') or 'unknown') end
  end
end
local unknown = {}
local reason = type(message.reason) == 'string' and message.reason ~= '' and cjson.encode(cut(message.reason, 300)) or nil
for at, id in ipairs(message.tasks) do
  if at > 500 or budget <= 0 then
    local rest = {}
    for i = at, #message.tasks do rest[#rest + 1] = type(message.tasks[i]) == 'string' and message.tasks[i] end
    redis.call('XADD', key_continued(), '*', 'cancel', cjson.encode({ version = 1, tasks = rest, client = client or '', reason = type(message.reason) == 'string' and message.reason or '' }))
    break
  end
  if is_task(id) then
    -- A client cancels its own tasks only; a person any.
    local known = (not client or split_id(id) == client) and cancel_task(id, reason)
    if not known then unknown[#unknown + 1] = tonumber(string.match(id, '%d+$')) end
  else
    quarantine('expected a task id', id)
  end
end
if client and #unknown > 0 then notify(client, 'unknown', cjson.encode({ tasks = unknown })) end
settle()
return 'applied'
