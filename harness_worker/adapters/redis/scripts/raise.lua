if gate.fence and gate.fence > fence then return answer(0) end
if not gate.fence or fence > gate.fence then
  redis.call('HSET', key, 'fence', fence, 'open', 1)
end
return answer(1)
