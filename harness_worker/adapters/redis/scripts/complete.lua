local entry = run_of(call_id, attempt, runner)
if not entry then return answer(0) end
local accepted = completion_of(call_id)
if accepted then return answer(accepted == completion and 1 or 0) end   -- a repeat, because the first reply was lost
if not gate.open and entry.finished then return answer(1) end   -- a repeat, after the turn's end removed its completion
if not gate.open or entry.closed or now > entry.deadline then return answer(0) end

entry.finished = stamp
save(call_id, entry)
redis.call('HSET', key, 'c:' .. call_id, completion)
return answer(1)
