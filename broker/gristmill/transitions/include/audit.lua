-- audit: what a person has ordered: who, what, why, and what became of it. Kept for people; nothing else reads it.
-- @include accept
local AUDIT_KEPT = 10000
local function is_order()
  return type(message.by) == 'string' and message.by ~= ''
end
local function audit(action, target, answer)
  local reason = type(message.reason) == 'string' and message.reason or ''
  redis.call('XADD', key_audit(), 'MAXLEN', '~', AUDIT_KEPT, '*', 'action', action, 'target', cut(target, 200), 'by', cut(message.by, 200), 'reason', cut(reason, 300), 'answer', answer)
end
