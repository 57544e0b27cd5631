if lives and not is_mine then return 0 end
local fence = tonumber(redis.call('HGET', key, 'fence')) or 0
if not lives then
  local clock = redis.call('TIME')
  fence = math.max(fence + 1, tonumber(clock[1]) * 1000000 + tonumber(clock[2]))
end
redis.call('HSET', key, 'holder', mine, 'fence', string.format('%.0f', fence))
redis.call('PEXPIRE', key, keep_ms)
redis.call('SET', mine, key, 'PX', ttl_ms)
return fence
