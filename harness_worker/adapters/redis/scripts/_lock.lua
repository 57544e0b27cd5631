-- Shared by the scripts of locks. Each lock has one hash, `key`:
--   holder     the key of its holder: that key exists as long as its worker sends heartbeats
--   fence      the number of its last holder; above every earlier one, even after a flush
local holder = redis.pcall('HGET', key, 'holder')
if type(holder) == 'table' then   -- another client wrote something else there, which counts as a lock that was lost
  if redis.call('TYPE', key).ok == 'hash' then return holder end   -- any other error is the caller's
  redis.call('DEL', key)
  holder = false
end
local is_mine = holder == mine
local lives = holder and redis.call('EXISTS', holder) == 1
