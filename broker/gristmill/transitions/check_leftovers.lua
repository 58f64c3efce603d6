-- check_leftovers: what belongs to tasks that are not there: calls, values, lists of dependents.
-- KEYS: prefix
-- ARGV: ids
-- RETURNS: checked
for id in string.gmatch(ids, '%S+') do
  if redis.call('EXISTS', key_task(id)) == 0 then
    for _, key in ipairs({ key_payload(id), key_value(id), key_dependents(id) }) do
      if redis.call('TTL', key) == -1 then
        redis.call('UNLINK', key)
        redis.call('HINCRBY', key_counts(), 'repaired:leftover', 1)
      end
    end
  end
end
return 'checked'
