-- changes: what this script has changed, collected here and written once at its end:
-- counts, one entry of events, one inbox entry for each client.
-- Numbers in rows come as text wherever they are text already: turning a number into text costs as much as a lookup.
local counts, change_rows, inbox_rows, notices = {}, {}, {}, {}
local change_workers, worker_index, change_functions, function_index = {}, {}, {}, {}
local function count(field, amount)
  counts[field] = (counts[field] or 0) + amount
end
-- The first functions are counted one by one, the rest as one, so that made-up names cannot fill Redis.
local FUNCTION_FIELDS = 2000
local ended_functions = {}
local function count_function(name, state)
  local states = ended_functions[name]
  if not states then
    states = {}
    ended_functions[name] = states
  end
  states[state] = (states[state] or 0) + 1
end
local function index_of(value, list, index)
  if not value or value == '' then return '-1' end
  local at = index[value]
  if not at then
    at = string.format('%d', #list)
    list[#list + 1] = value
    index[value] = at
  end
  return at
end
-- Notes that a task went from one state (nil when new) to another. `tail` is JSON text of further columns.
local function change(task, from, to, attempt, worker, name, tail)
  if from then count('state:' .. from, -1) end
  count('state:' .. to, 1)
  change_rows[#change_rows + 1] = '["' .. task .. '","' .. to .. '",' .. attempt .. ',' .. index_of(worker, change_workers, worker_index) .. ',' .. index_of(name, change_functions, function_index) .. (tail or '') .. ']'
end
-- The client of a task, and its number as text without leading zeros: the two halves of its id.
local function split_id(task)
  local dot = string.find(task, '.', 1, true)
  return string.sub(task, 1, dot - 1), string.sub(task, string.find(task, '[^0]', dot + 1) or -1)
end
-- Adds a row to the client's next inbox entry. Rows of one entry come from one worker, or from none.
local function tell_outcome(client, worker, row)
  local rows = inbox_rows[client]
  if not rows then
    rows = {}
    inbox_rows[client] = rows
  end
  local from_worker = rows[worker]
  if not from_worker then
    from_worker = {}
    rows[worker] = from_worker
  end
  from_worker[#from_worker + 1] = row
end
local function notify(client, kind, json)
  notices[#notices + 1] = { client, kind, json }
end
-- All counts are read and written at once: a command for each costs more than everything else that is done with them.
-- Answers the running number of the last change.
local function write_counts()
  local fields, amounts, named = {}, {}, {}
  local function add(field, amount, others)
    if amount == 0 then return end
    fields[#fields + 1], amounts[#amounts + 1] = field, amount
    named[#fields] = others
  end
  add('events', #change_rows)
  for field, amount in pairs(counts) do add(field, amount) end
  for name, states in pairs(ended_functions) do
    for state, amount in pairs(states) do add('function:' .. name .. ':' .. state, amount, 'function:(others):' .. state) end
  end
  local written = {}
  for from = 1, #fields, 500 do
    local to = math.min(from + 499, #fields)
    local values = redis.call('HMGET', key_counts(), unpack(fields, from, to))
    for at = from, to do
      local value = values[at - from + 1]
      if not value and named[at] and redis.call('HINCRBY', key_counts(), 'function_fields', 1) > FUNCTION_FIELDS then
        redis.call('HINCRBY', key_counts(), named[at], amounts[at])
      else
        written[#written + 1] = fields[at]
        written[#written + 1] = (tonumber(value) or 0) + amounts[at]
      end
    end
  end
  for from = 1, #written, 1000 do redis.call('HSET', key_counts(), unpack(written, from, math.min(from + 999, #written))) end
  return written[2]
end
-- A client that ended has no inbox any more: NOMKSTREAM keeps it from coming back.
local function write_changes()
  for client, rows in pairs(inbox_rows) do
    -- What ended because of another comes behind that.
    local from_none = rows['']
    rows[''] = nil
    for worker, from_worker in pairs(rows) do
      redis.call('XADD', key_client_inbox(client), 'NOMKSTREAM', '*', 'outcomes', '{"worker":"' .. worker .. '","rows":[' .. table.concat(from_worker, ',') .. ']}')
    end
    if from_none then redis.call('XADD', key_client_inbox(client), 'NOMKSTREAM', '*', 'outcomes', '{"worker":"","rows":[' .. table.concat(from_none, ',') .. ']}') end
  end
  for _, notice in ipairs(notices) do
    redis.call('XADD', key_client_inbox(notice[1]), 'NOMKSTREAM', '*', notice[2], notice[3])
  end
  local number = write_counts()
  if #change_rows > 0 then
    local functions = '[]'
    if #change_functions > 0 then functions = cjson.encode(change_functions) end
    local workers = '[]'
    if #change_workers > 0 then workers = cjson.encode(change_workers) end
    redis.call('XADD', key_events(), '*', 'number', number, 'workers', workers, 'functions', functions, 'changes', '[' .. table.concat(change_rows, ',') .. ']')
  end
end
