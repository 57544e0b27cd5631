local entry = run_of(call_id, attempt, runner)
if entry and entry.beat < entry.deadline then   -- else it had its whole time, and then was ended for it
  entry.beat = 0
  save(call_id, entry)
end
return answer(1)
