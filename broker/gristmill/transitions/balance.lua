-- balance: evens out one lane, once a second.
-- KEYS: prefix
-- ARGV: lane
-- RETURNS: balanced
-- @include settle
-- @include balance_lane
balance_lane(lane)
settle()
return 'balanced'
