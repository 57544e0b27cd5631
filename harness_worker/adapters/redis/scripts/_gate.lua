-- Shared by every script of the gate. Each turn has one hash, `key`:
--   fence      the highest fence let in              open     1 or 0
--   until      the latest deadline given, ms         e:CALL   the call's current attempt, JSON (see below)
--   whole      1 if it has known every call: made by the first visit, and raised by every visit since
--   t:CALL     what a read needs to run              c:CALL   the completion that was accepted
-- An entry is {attempt, use, deadline, beat, runner, started, finished, closed}: use is the model's own id of the call;
-- deadline and beat in ms of Redis TIME, the only clock; started and finished as text, seconds to the microsecond; no
-- beat: never admitted; beat 0: known lost.
local MARGIN_MS, LEAST_TTL_MS = 600000, 3600000
local LONGEST_MS = 315360000000   -- ten years: Redis takes no expiry past 2^63 ms

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local stamp = string.format('%s.%06d', clock[1], tonumber(clock[2]))

local head = redis.pcall('HMGET', key, 'fence', 'open', 'until')
if head.err then   -- another client wrote something else there, which counts as a gate that was lost
  if redis.call('TYPE', key).ok == 'hash' then return head end   -- any other error is the caller's
  redis.call('DEL', key)
  head = {}
end
local gate = {fence = tonumber(head[1]), open = head[2] == '1', last = tonumber(head[3]) or 0}

-- Every operation returns through here, so that every key gets an expiry.
local function answer(reply)
  redis.call('PEXPIREAT', key, math.max(gate.last + MARGIN_MS, now + LEAST_TTL_MS))
  return reply
end

-- Whether the gate exists and `fence` was the last one let in. A fence that was let into a gate since lost in a flush
-- does not count in the gate that replaced it.
local function leads(fence)
  return gate.fence == fence
end

local function entry_of(call_id)
  local text = redis.call('HGET', key, 'e:' .. call_id)
  return text and cjson.decode(text) or nil
end

-- Whether it belongs to another call with the same id: the database was restored, and the model asked again.
local function is_of_another(entry, tool_use_id)
  return entry.use and entry.use ~= tool_use_id
end

local function save(call_id, entry)
  redis.call('HSET', key, 'e:' .. call_id, cjson.encode(entry))
end

local function completion_of(call_id)
  return redis.call('HGET', key, 'c:' .. call_id)
end

-- The entry if it belongs to this very run, else nil.
local function run_of(call_id, attempt, runner)
  local entry = entry_of(call_id)
  return entry and entry.attempt == attempt and entry.runner == runner and entry or nil
end

local function stale(entry, lease_ttl_ms)
  return now - entry.beat > lease_ttl_ms
end
