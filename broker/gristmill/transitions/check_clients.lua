-- check_clients: a client whose inbox has vanished would never hear of its tasks. Its record goes too: then it notices,
-- registers anew, and asks for what it has missed.
-- KEYS: prefix
-- ARGV: ids
-- RETURNS: checked
for client in string.gmatch(ids, '%S+') do
  local facts = redis.call('HMGET', key_client(client), 'registration', 'ended')
  if facts[1] and not facts[2] and redis.call('EXISTS', key_client_inbox(client)) == 0 then
    redis.call('HINCRBY', key_counts(), 'repaired:inbox', 1)
    redis.call('DEL', key_client(client), key_client_batches(client))
  end
end
return 'checked'
