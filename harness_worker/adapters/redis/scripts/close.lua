if leads(fence) then redis.call('HSET', key, 'open', 0) end
return answer(1)
