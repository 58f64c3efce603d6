-- release: a client needs objects no longer; the last holder's release frees them.
-- KEYS: prefix request
-- ARGV: entry body
-- RETURNS: applied duplicate early newer malformed
-- @include accept
-- @include objects
local message, word = decode()
if not message then return word end
if not is_id(message.client) or type(message.objects) ~= 'table' then return refuse_entry('expected client and objects') end
if not batch_applied(message.client, message.after) then return 'early' end
if not accept() then return 'duplicate' end
for _, object in ipairs(message.objects) do
  if is_object(object) then
    redis.call('SREM', key_client_objects(message.client), object)
    drop_holder(object, message.client)
  end
end
return 'applied'
