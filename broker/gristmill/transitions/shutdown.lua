-- shutdown: a client ends the whole installation: its workers leave, and then its schedulers; unless it is protected.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed
-- @include clock
-- @include accept
-- @include changes
local SLICE = 200
local message, word = decode()
if not message then return word end
if not is_id(message.client) then return refuse_entry('expected client') end
local cursor = message.cursor or ''
if type(cursor) ~= 'string' or string.find(cursor, '%D') then return refuse_entry('expected a cursor of digits') end
if not accept() then return 'duplicate' end
if cursor == '' then
  count('requests:shutdown', 1)
  local open = redis.call('HGET', key_namespace_facts(), 'protected') == '0'
  notify(message.client, 'shutdown', cjson.encode({ accepted = open }))
  if open then redis.call('HSET', key_namespace_facts(), 'shutdown', string.format('%d', now_ms())) end
  write_changes()
  if not open then return 'applied' end
end
local scanned = redis.call('ZSCAN', key_workers(), cursor == '' and '0' or cursor, 'COUNT', SLICE)
for i = 1, #scanned[2], 2 do
  redis.call('XADD', key_worker_control(scanned[2][i]), '*', 'stop', '{"version":1}')
end
if scanned[1] ~= '0' then
  redis.call('XADD', key_continued(), '*', 'shutdown', cjson.encode({ version = 1, client = message.client, cursor = scanned[1] }))
end
return 'applied'
