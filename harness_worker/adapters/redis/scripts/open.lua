-- A gate that was lost in a flush is not created here: only raise does that, so that a coordinator that was stopped
-- cannot start a read after the turn's end.
if not leads(fence) or not gate.open then return answer(0) end
for _, pass in ipairs(passes) do
  local known = entry_of(pass.call_id)
  if not known or known.attempt < pass.attempt or is_of_another(known, pass.tool_use_id) then
    local deadline = now + math.min(pass.remaining_ms, LONGEST_MS)
    save(pass.call_id, {attempt = pass.attempt, deadline = deadline, use = pass.tool_use_id})
    redis.call('HSET', key, 't:' .. pass.call_id, pass.ticket)
    redis.call('HDEL', key, 'c:' .. pass.call_id)
    gate.last = math.max(gate.last, deadline)
  end
end
redis.call('HSET', key, 'until', gate.last)
return answer(1)
