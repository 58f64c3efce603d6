-- check_members: of the tasks that a client is said to have, those without a record were lost: it is told, and sends
-- them again.
-- KEYS: prefix
-- ARGV: client ids
-- RETURNS: checked
-- @include changes
local lost = {}
for id in string.gmatch(ids, '%S+') do
  if redis.call('EXISTS', key_task(id)) == 0 and redis.call('SREM', key_client_tasks(client), id) == 1 then
    local number = string.match(id, '%.(%d+)$')
    if number then lost[#lost + 1] = string.format('%d', number) end
    count('repaired:record_gone', 1)
  end
end
if #lost > 0 then notify(client, 'lost', '{"tasks":[' .. table.concat(lost, ',') .. ']}') end
write_changes()
return 'checked'
