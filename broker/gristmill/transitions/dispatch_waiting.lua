-- dispatch_waiting: hands out what an error left waiting in a lane although a worker has room.
-- KEYS: prefix
-- ARGV: lane
-- RETURNS: dispatched
-- @include settle
waiting_lanes[lane] = true
settle()
return 'dispatched'
