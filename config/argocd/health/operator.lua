-- Kinds of operator.kcp.io. All have the conditions of kstatus; Stalled needs a change, all else is on its way.
local health = {status = "Progressing", message = "the operator has not looked at it yet"}
local status = obj.status or {}
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local function report(value, condition)
  health.status = value
  health.message = condition.reason .. ": " .. condition.message
end
local ready, stalled, etcd = conditions.Ready, conditions.Stalled, conditions.EtcdHealthy
if status.observedGeneration ~= obj.metadata.generation or ready == nil then
  return health
end
if stalled ~= nil and stalled.status == "True" then
  report("Degraded", stalled)
elseif ready.status ~= "True" then
  report("Progressing", ready)
elseif etcd ~= nil and etcd.status == "False" and etcd.reason == "NoSpace" then
  report("Degraded", etcd)
else
  report("Healthy", ready)
end
return health
