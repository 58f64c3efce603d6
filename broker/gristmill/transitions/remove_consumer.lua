-- remove_consumer: takes a dead replica off the group of a request stream, but only when nothing is pending there:
-- entries of a deleted consumer could be claimed by nobody.
-- KEYS: prefix request
-- ARGV: consumer idle_ms
-- RETURNS: removed kept
for _, facts in ipairs(redis.call('XINFO', 'CONSUMERS', request, 'schedulers')) do
  local fields = {}
  for i = 1, #facts, 2 do fields[facts[i]] = facts[i + 1] end
  if fields.name == consumer then
    if fields.pending > 0 or fields.idle < tonumber(idle_ms) then return 'kept' end
    redis.call('XGROUP', 'DELCONSUMER', request, 'schedulers', consumer)
    return 'removed'
  end
end
return 'kept'
