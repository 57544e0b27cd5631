-- Look and mark in one step; otherwise a late completion could come in between and be told that it was accepted.
local led = leads(fence)
local whole = redis.call('HGET', key, 'whole') == '1'

-- A read had all its time only if its process was seen alive at the end of it; else it died before, and may run again.
local function had_its_time(entry)
  return now > entry.deadline and (not entry.beat or entry.beat >= entry.deadline)
end

local function state_of(entry)
  if had_its_time(entry) then return 'expired', true end
  if entry.closed then return 'closed', true end
  if not entry.beat then return 'unadmitted', close end
  if stale(entry, lease_ttl_ms) then return 'lost', true end
  return 'live', close
end

local function settled(read)
  local entry = led and entry_of(read.call_id)
  -- The attempt was committed but is not open yet: it cannot have started, and must not count as lost.
  local early = entry and (entry.attempt < read.attempt or is_of_another(entry, read.tool_use_id))
  early = early or not entry and led and whole
  if early then return {'unadmitted', '', '', '', '', ''} end
  if not entry or entry.attempt ~= read.attempt then return {'gone', '', '', '', '', ''} end
  local state, completion, shut = '', completion_of(read.call_id), false
  if not completion then state, shut = state_of(entry) end
  if shut and not entry.closed then
    entry.closed = true
    save(read.call_id, entry)
  end
  local left_ms = state == 'live' and tostring(entry.beat + lease_ttl_ms + 1 - now) or ''
  return {state, completion or '', entry.started or '', entry.finished or '', entry.runner or '', left_ms}
end

local replies = {}
for _, read in ipairs(reads) do replies[#replies + 1] = settled(read) end
return answer(replies)
