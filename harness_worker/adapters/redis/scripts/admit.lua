local entry = gate.open and entry_of(call_id)
if not entry or entry.attempt ~= attempt or entry.closed then return answer({'closed', 0, ''}) end
if completion_of(call_id) then return answer({'done', 0, ''}) end
if now > entry.deadline then return answer({'closed', 0, ''}) end
if entry.beat then return answer({stale(entry, lease_ttl_ms) and 'lost' or 'duplicate', 0, ''}) end

entry.beat, entry.started, entry.runner = now, stamp, runner
entry.deadline = math.min(entry.deadline, now + cap_ms)
save(call_id, entry)
return answer({'ok', math.max(0, entry.deadline - now), redis.call('HGET', key, 't:' .. call_id)})
