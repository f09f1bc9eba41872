-- Kinds of the infrastructure provider and of the sync agent: Ready has the reason. These reasons need a change by the user.
local health = {status = "Progressing", message = "the controller has not looked at it yet"}
local permanent = {
  InvalidSpec = true, BackendNotFound = true, BackendNotReady = true, BackendError = true, CRDError = true, APIExportError = true,
  SourceNotFound = true, SchemaRefused = true, ExportNotFound = true, ExportNotUpdated = true, ClaimOfOtherIdentity = true,
  ResourceAlreadyPublished = true,
}
for _, condition in ipairs((obj.status or {}).conditions or {}) do
  local current = condition.observedGeneration == nil or condition.observedGeneration == obj.metadata.generation
  if condition.type == "Ready" and current then
    health.message = condition.reason .. ": " .. (condition.message or "")
    if condition.status == "True" then
      health.status = "Healthy"
    elseif permanent[condition.reason] then
      health.status = "Degraded"
    end
  end
end
return health
