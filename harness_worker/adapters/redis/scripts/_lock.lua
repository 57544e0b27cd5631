-- Shared by the scripts of locks. One hash a lock, `key`:
--   holder     the key of who holds it: that key exists as long as its worker beats for it
--   fence      the number of who held it last; above every earlier one, also after a flush
local holder = redis.call('HGET', key, 'holder')
local is_mine = holder == mine
local lives = holder and redis.call('EXISTS', holder) == 1
