-- drain: the worker gets no more tasks, and what it has not read goes back to its lane at once.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate newer malformed unknown
-- @include accept
-- @include settle
-- @include unread
local SLICE = 200
local message, word = decode()
if not message then return word end
if not is_id(message.worker) then return refuse_entry('expected worker') end
if not accept() then return 'duplicate' end
local worker = worker_of(message.worker)
if not worker or worker.gone then return 'unknown' end
redis.call('HSET', key_worker(worker.id), 'draining', 1)
worker.open = false
touch(worker)
if return_unread(worker, SLICE) == SLICE then redis.call('XADD', key_continued(), '*', 'drain', '{"version":1,"worker":"' .. worker.id .. '"}') end
settle()
return 'applied'
