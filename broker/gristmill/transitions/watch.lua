-- watch: a client wants to be told how a task ends, be it its own or not: by its id.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate early newer malformed
-- @include accept
-- @include task_id
-- @include changes
-- @include states
-- @include objects
-- @include on_its_way
local MOST_WATCHERS = 2000
local message, word = decode()
if not message then return word end
local client, id = message.client, message.task
if not is_id(client) or not is_task(id) then return refuse_entry('expected a client and a task') end
if is_on_its_way(id) then return 'early' end
if not accept() then return 'duplicate' end
count('requests:watch', 1)
local facts = redis.call('HMGET', key_task(id), 'state', 'kept', 'watchers')
if not facts[1] then
  local maker, number = split_id(id)
  notify(client, 'watched', '{"task":"' .. id .. '","gone":"' .. (last_number(maker) >= tonumber(number) and 'expired' or 'unknown') .. '"}')
elseif facts[2] then
  local worker, row = string.match(facts[2], '^(%S*) (.*)$')
  notify(client, 'watched', '{"task":"' .. id .. '","worker":"' .. worker .. '","row":[' .. string.gsub(row, '%%', function() return redis.call('GET', key_value(id)) or 'null' end, 1) .. ']}')
elseif is_terminal(facts[1]) then
  -- Finished, and only there because others need its value.
  notify(client, 'watched', '{"task":"' .. id .. '","gone":"expired"}')
elseif not string.find(' ' .. (facts[3] or '') .. ' ', ' ' .. client .. ' ', 1, true) then
  if facts[3] and #facts[3] > MOST_WATCHERS * 11 then
    notify(client, 'watched', '{"task":"' .. id .. '","gone":"crowded"}')
  else
    redis.call('HSET', key_task(id), 'watchers', (facts[3] and facts[3] .. ' ' or '') .. client, 'more', 1)
  end
end
write_changes()
return 'applied'
