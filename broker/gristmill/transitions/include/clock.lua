-- clock: what time it is. Redis's own clock, so that no client's or worker's clock enters a decision.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
-- Leases are compared with the observed clock, which only advances while schedulers sweep.
local function observed_ms()
  return tonumber(redis.call('HGET', key_clock(), 'observed') or '0')
end
