-- pause: from now on no task is assigned to anybody, or again to all, for a person. What is assigned goes on.
-- The workers' records say so, a slice at a time: dispatch has nothing more to look at than who takes tasks.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed
-- @include accept
-- @include settle
local SLICE = 100
local message, word = decode()
if not message then return word end
-- @include audit
if not is_order() or type(message.paused) ~= 'boolean' then return refuse_entry('expected by and paused') end
local cursor = message.cursor or ''
if type(cursor) ~= 'string' or string.find(cursor, '%D') then return refuse_entry('expected a cursor of digits') end
if not accept() then return 'duplicate' end
local paused = message.paused
if cursor == '' then
  audit(paused and 'pause' or 'resume', '', 'applied')
  if paused then
    redis.call('HSET', key_namespace_facts(), 'paused', 1)
  else
    redis.call('HDEL', key_namespace_facts(), 'paused')
  end
elseif (redis.call('HEXISTS', key_namespace_facts(), 'paused') == 1) ~= paused then
  return 'applied' -- a later order is on its way through the workers
end
local scanned = redis.call('ZSCAN', key_workers(), cursor == '' and '0' or cursor, 'COUNT', SLICE)
for i = 1, #scanned[2], 2 do
  local id = scanned[2][i]
  local draining = redis.call('HGET', key_worker(id), 'draining')
  if paused and not draining and redis.call('EXISTS', key_worker(id)) == 1 then
    redis.call('HSET', key_worker(id), 'draining', 'paused')
    local worker = worker_of(id)
    if worker then touch(worker) end
  elseif not paused and draining == 'paused' then
    redis.call('HDEL', key_worker(id), 'draining')
    local worker = worker_of(id)
    if worker then
      touch(worker)
      worker.freed = true
    end
  end
end
if scanned[1] ~= '0' then
  redis.call('XADD', key_continued(), '*', 'pause', cjson.encode({ version = 1, paused = paused, by = message.by, reason = type(message.reason) == 'string' and message.reason or '', cursor = scanned[1] }))
end
settle()
return 'applied'
