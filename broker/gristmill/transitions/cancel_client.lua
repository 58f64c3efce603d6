-- cancel_client: cancels all tasks that a client has now, in slices, for a person. The client lives on.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed unknown
-- @include accept
-- @include settle
-- @include cancel_task
local SLICE = 200
local message, word = decode()
if not message then return word end
-- @include audit
if not is_order() or not is_id(message.client) then return refuse_entry('expected by and client') end
local cursor = message.cursor or ''
if type(cursor) ~= 'string' or string.find(cursor, '%D') then return refuse_entry('expected a cursor of digits') end
if not accept() then return 'duplicate' end
local client = message.client
if cursor == '' then
  local known = redis.call('EXISTS', key_client(client)) == 1
  audit('cancel_client', client, known and 'applied' or 'it has gone')
  if not known then return 'unknown' end
end
local reason = cjson.encode(cut(message.reason ~= '' and type(message.reason) == 'string' and message.reason or 'all tasks of the client were cancelled', 300))
-- What stays in the set, because its worker must confirm, is passed over once; SSCAN meets all that was there.
local scanned = redis.call('SSCAN', key_client_tasks(client), cursor == '' and '0' or cursor, 'COUNT', SLICE)
for _, id in ipairs(scanned[2]) do cancel_task(id, reason) end
if scanned[1] ~= '0' then
  redis.call('XADD', key_continued(), '*', 'cancel_client', cjson.encode({ version = 1, client = client, by = message.by, reason = type(message.reason) == 'string' and message.reason or '', cursor = scanned[1] }))
end
settle()
return 'applied'
