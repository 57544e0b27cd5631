if gate.fence and gate.fence <= fence then
  -- Remember a fence above all that were let in, so that none below it can open the gate again.
  if gate.fence < fence then redis.call('HDEL', key, 'whole') end
  redis.call('HSET', key, 'fence', fence, 'open', 0)
  for _, field in ipairs(is_over and redis.call('HKEYS', key) or {}) do
    if field:find('^[ct]:') then redis.call('HDEL', key, field) end
  end
end
return answer(1)
