if gate.fence and gate.fence > fence then return answer(0) end
if not gate.fence or fence > gate.fence then
  redis.call('HSET', key, 'fence', fence, 'open', 1)
  -- Made by the first visit of all: what this gate does not know was never opened. One made anew may have forgotten.
  if not gate.fence and fence == 1 then redis.call('HSET', key, 'whole', 1) end
  -- A visit that was skipped may have opened its calls in a gate that a flush took.
  if gate.fence and fence > gate.fence + 1 then redis.call('HDEL', key, 'whole') end
end
return answer(1)
