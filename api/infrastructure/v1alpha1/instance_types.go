package v1alpha1

// InstancePhase is the phase of an instance.
type InstancePhase string

// The phases of an instance.
const (
	PhasePending         InstancePhase = "Pending"
	PhaseProvisioning    InstancePhase = "Provisioning"
	PhaseReady           InstancePhase = "Ready"
	PhaseFailed          InstancePhase = "Failed"
	PhaseDeleting        InstancePhase = "Deleting"
	PhaseTemplateRemoved InstancePhase = "TemplateRemoved"
)
