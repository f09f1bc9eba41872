package runner

import "time"

// Operation is what a run does.
type Operation string

const (
	// Apply applies the inputs to the infrastructure.
	Apply Operation = "apply"
	// Check compares the infrastructure with the inputs.
	Check Operation = "check"
	// Repair is Check, followed by Apply if something differs.
	Repair Operation = "repair"
	// Destroy removes the infrastructure.
	Destroy Operation = "destroy"
)

const (
	// SettingsKey and VariablesKey are the names of files among the inputs; all other files are the module.
	SettingsKey, VariablesKey = "atoll.settings.json", "atoll.variables.tfvars.json"
	// StateKey is the key of the state in its Secret: JSON, compressed by gzip.
	StateKey = "state"
	// ResultKey is the key of the Result in its Secret, as JSON.
	ResultKey = "result"
)

// Settings configure a run besides the module.
type Settings struct {
	// Revision identifies the inputs. A result has the revision of the inputs that were applied.
	Revision string `json:"revision"`
	// Outputs and Connection are names of outputs of the module. Other outputs are not written to the result.
	Outputs    []string `json:"outputs,omitempty"`
	Connection []string `json:"connection,omitempty"`
}

// Result is the recorded outcome of runs.
type Result struct {
	// Revision is the revision of the inputs that were applied last. It is empty while it is unknown what exists.
	Revision string `json:"revision,omitempty"`
	// Time is when the infrastructure was last applied or compared.
	Time time.Time `json:"time"`
	// Drifted means that the infrastructure differed from the inputs at that time.
	Drifted bool `json:"drifted,omitempty"`
	// Destroyed means that the infrastructure was removed.
	Destroyed bool `json:"destroyed,omitempty"`
	// Outputs are outputs that are not sensitive.
	Outputs map[string]any `json:"outputs,omitempty"`
	// Connection are outputs as texts, which may be sensitive.
	Connection map[string]string `json:"connection,omitempty"`
}

// StateName returns the name of the Secret of the state of an instance.
func StateName(name string) string { return name + "-state" }

// ResultName returns the name of the Secret of the result of an instance.
func ResultName(name string) string { return name + "-result" }
