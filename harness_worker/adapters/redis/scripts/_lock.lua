-- Shared by the scripts of locks. Each lock has one hash, `key`:
--   holder     the key of its holder: that key exists as long as its worker sends heartbeats
--   fence      the number of its last holder; above every earlier one, even after a flush
-- Something else that another client wrote there counts as a lock that was lost.
if redis.call('TYPE', key).ok ~= 'hash' then redis.call('DEL', key) end
local holder = redis.call('HGET', key, 'holder')
local is_mine = holder == mine
local lives = holder and redis.call('EXISTS', holder) == 1
