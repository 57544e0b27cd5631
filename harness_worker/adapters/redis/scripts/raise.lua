if gate.fence and gate.fence > fence then return answer(0) end
if not gate.fence or fence > gate.fence then
  redis.call('HSET', key, 'fence', fence, 'open', 1)
  -- Created by the very first visit, this gate knows every call ever opened; one created later may not.
  if not gate.fence and fence == 1 then redis.call('HSET', key, 'whole', 1) end
  -- The visit in between may have opened calls in a gate that was lost in a flush.
  if gate.fence and fence > gate.fence + 1 then redis.call('HDEL', key, 'whole') end
end
return answer(1)
