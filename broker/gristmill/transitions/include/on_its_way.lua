-- on_its_way: whether a task that is not known may still come: in a batch that lies unapplied before this request.
-- Not for ever: other replicas have applied it by then, or nobody will.
-- @include clock
-- @include changes
local PATIENCE_MS = 10000
-- The greatest number that was accepted of a client; -1 when it is not known.
local function last_number(client)
  return tonumber(redis.call('HGET', key_client(client), 'last') or -1)
end
local function is_on_its_way(id)
  local client, number = split_id(id)
  if last_number(client) >= tonumber(number) or redis.call('EXISTS', key_task(id)) == 1 then return false end
  local oldest = redis.call('XRANGE', key_submit(), '-', '+', 'COUNT', 1)[1]
  local asked_at = tonumber(string.match(entry, '^%d+'))
  return oldest ~= nil and tonumber(string.match(oldest[1], '^%d+')) <= asked_at and now_ms() - asked_at < PATIENCE_MS
end
