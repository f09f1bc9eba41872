-- Kinds of kcp inside workspaces. Their conditions have a severity: Error needs a change, others are on their way or only tell something.
-- Most kinds have a phase, too. For those without, Ready may be all that says what is wrong.
local health = {status = "Progressing", message = "no server has looked at it yet"}
local status = obj.status or {}
local severe, other
local function consider(condition)
  if condition.status == "False" and condition.severity == "Error" then
    severe = severe or condition
  elseif condition.severity ~= "Warning" then
    other = other or condition
  end
end
local ready
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Ready" then
    ready = condition
  elseif condition.status == "False" then
    consider(condition)
  end
end
if status.phase == nil and severe == nil and other == nil and ready ~= nil and ready.status ~= "True" then
  consider(ready)
end
local finished = {Ready = true, Bound = true, Completed = true}
local stopped = {Unavailable = "Degraded", Failed = "Degraded", Inactive = "Suspended"}
local function text(condition)
  return (condition.reason or "") .. ": " .. (condition.message or "")
end
if severe ~= nil then
  health.status = "Degraded"
  health.message = text(severe)
elseif stopped[status.phase] ~= nil then
  health.status = stopped[status.phase]
  health.message = "phase " .. status.phase
elseif finished[status.phase] then
  health.status = "Healthy"
  health.message = other ~= nil and text(other) or ("phase " .. status.phase)
elseif other ~= nil then
  health.message = text(other)
elseif status.phase ~= nil then
  health.message = "phase " .. status.phase
elseif status.conditions ~= nil and #status.conditions > 0 then
  health.status = "Healthy"
  health.message = ""
end
return health
