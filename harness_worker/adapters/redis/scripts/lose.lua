local entry = run_of(call_id, attempt, runner)
if entry then
  entry.beat = 0
  save(call_id, entry)
end
return answer(1)
