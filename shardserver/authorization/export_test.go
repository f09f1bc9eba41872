package authorization

// MaxFlowOwners is the bound of CachedFlowOwners.
const MaxFlowOwners = maxFlowOwners

// CachedFlowOwners returns the number of cached flow owners.
func (a *Authorizer) CachedFlowOwners() int { return len(a.flowOwners.Keys()) }
