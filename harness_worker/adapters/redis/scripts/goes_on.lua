local entry = run_of(call_id, attempt, runner)
return answer(entry and gate.open and not entry.closed and now <= entry.deadline and 1 or 0)
