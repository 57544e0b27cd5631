for _, run in ipairs(runs) do
  local entry = run_of(run.call_id, run.attempt, run.runner)
  if entry and entry.beat > 0 then   -- a late heartbeat does not revive a process known to be dead
    entry.beat = now
    save(run.call_id, entry)
  end
end
return answer(1)
