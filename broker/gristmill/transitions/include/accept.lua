-- accept: reads the request and takes it off its stream, exactly once whoever applies it.
-- XACK is the first write of every script that applies a request: if another replica was faster it answers 0
-- and nothing is written. As a first write it also lets the script run when Redis is out of memory.
local function accept()
  if redis.call('XACK', request, 'schedulers', entry) == 0 then return false end
  redis.call('XDEL', request, entry)
  return true
end
-- Cuts text without cutting a character in two.
local function cut(text, most)
  if #text <= most then return text end
  while most > 0 and string.byte(text, most + 1) >= 128 and string.byte(text, most + 1) < 192 do most = most - 1 end
  return string.sub(text, 1, most)
end
-- `item` is the part of the message that could not be understood; without it the whole body is kept.
local function quarantine(reason, item)
  local readable, detail = pcall(cjson.encode, item)
  if item == nil or not readable then detail = body end
  redis.call('XADD', key_quarantine(), 'MAXLEN', '~', 1000, '*', 'reason', cut(tostring(reason), 500), 'request', request, 'entry', entry, 'body', cut(detail, 4096))
end
-- Answers the decoded message, or nil and the word to return: nothing has been written when the word is `newer`.
local function decode()
  local _, message = pcall(cjson.decode, body)
  if type(message) == 'table' and type(message.version) == 'number' then
    if message.version > 1 then return nil, 'newer' end
    return message
  end
  if not accept() then return nil, 'duplicate' end
  quarantine('expected a JSON object with a version')
  return nil, 'malformed'
end
-- Takes off an entry whose message has the wrong shape, with the reason.
local function refuse_entry(reason)
  if not accept() then return 'duplicate' end
  quarantine(reason)
  return 'malformed'
end
local function is_id(value)
  return type(value) == 'string' and #value <= 200 and string.find(value, '^[%w_.|-]+$') ~= nil
end
-- An object's id ends in the number of its chunks; the bound (64 GiB) keeps a made-up one from holding Redis up.
local function is_object(value)
  return is_id(value) and (tonumber(string.match(value, '%-(%d+)$')) or 0) >= 1 and tonumber(string.match(value, '%-(%d+)$')) <= 65536
end
local function is_whole(value, least, most)
  return type(value) == 'number' and value >= least and value <= most and value % 1 == 0
end
-- A request that needs earlier batches waits until all up to the last of them are applied (other replicas may have
-- those in between); likewise one that is `ahead` of its client's registration. Not for ever: what has not come
-- although schedulers have read all that was sent for a while after does not exist.
local function batch_applied(client, batch, ahead)
  if not ahead then
    if type(batch) ~= 'number' or batch <= 0 then return true end
    local facts = redis.call('HMGET', key_client(client), 'batch', 'ended')
    -- Nothing more is applied for a client that has ended: who waits for that would wait for ever.
    if not facts[1] or facts[2] or batch <= tonumber(facts[1]) then return true end
  end
  local came = tonumber(string.match(entry, '^%d+'))
  if redis.call('TIME')[1] * 1000 < came + 60000 then return false end
  local groups, stream = redis.pcall('XINFO', 'GROUPS', key_submit()), redis.pcall('XINFO', 'STREAM', key_submit())
  if groups.err or stream.err or not groups[1] then return true end
  local facts = {}
  for _, list in ipairs({ groups[1], stream }) do
    for i = 1, #list, 2 do facts[list[i]] = list[i + 1] end
  end
  local read = facts['last-delivered-id']
  return read == facts['last-generated-id'] or tonumber(string.match(read, '^%d+')) > came + 30000
end
