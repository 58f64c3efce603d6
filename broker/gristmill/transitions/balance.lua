-- balance: evens out one lane, once a second.
-- KEYS: prefix
-- ARGV: lane
-- RETURNS: balanced
-- @include settle
balance_lane(lane)
settle()
return 'balanced'
