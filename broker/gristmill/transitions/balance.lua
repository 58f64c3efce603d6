-- balance: evens out one lane, again and again.
-- KEYS: prefix
-- ARGV: lane
-- RETURNS: balanced
-- @include settle
balance_lane(lane)
settle()
return 'balanced'
