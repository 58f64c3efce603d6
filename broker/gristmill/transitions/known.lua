-- known: a client that had to register anew asks which of its tasks there are; it is told which there are not. The
-- answer lies behind every outcome: what has neither was lost, and the client sends it again. So nothing runs again
-- that has ended while the client registered.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed unknown
-- @include accept
local LIMIT = 500
local message, word = decode()
if not message then return word end
if not is_id(message.client) or type(message.tasks) ~= 'table' or #message.tasks > LIMIT then return refuse_entry('expected client and at most ' .. LIMIT .. ' tasks') end
if not accept() then return 'duplicate' end
redis.call('HINCRBY', key_counts(), 'requests:known', 1)
local facts = redis.call('HMGET', key_client(message.client), 'registration', 'ended')
if not facts[1] or facts[2] or tonumber(facts[1]) ~= message.registration then return 'unknown' end
local lost, asked = {}, {}
for _, number in ipairs(message.tasks) do
  if not is_whole(number, 0, 9999999999) then
    quarantine('expected a task number', number)
  else
    asked[#asked + 1] = string.format('%d', number)
    if redis.call('EXISTS', key_task(message.client .. '.' .. string.format('%07d', number))) == 0 then lost[#lost + 1] = asked[#asked] end
  end
end
redis.call('XADD', key_client_inbox(message.client), 'NOMKSTREAM', '*', 'lost', '{"tasks":[' .. table.concat(lost, ',') .. '],"of":[' .. table.concat(asked, ',') .. ']}')
return 'applied'
