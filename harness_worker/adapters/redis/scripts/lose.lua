local entry = run_of(call_id, attempt, runner)
if entry and entry.beat < entry.deadline then   -- else it had all its time, and was ended for that
  entry.beat = 0
  save(call_id, entry)
end
return answer(1)
