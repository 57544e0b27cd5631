-- SQL decides about writes, so a gate that was lost in a flush refuses none.
if not gate.fence then return 1 end
local entry = entry_of(call_id)
local superseded = entry and entry.attempt > attempt
return answer(gate.open and not superseded and 1 or 0)
