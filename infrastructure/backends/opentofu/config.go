// Package opentofu is a backend that provides instances with OpenTofu. Jobs in the runtime cluster plan and apply a module in the namespace
// of the tenant. The state is in a Secret of that namespace, locked by a lease.
//
// Package runner implements the program of the Jobs. This package decides which run is next, and never runs tofu itself.
package opentofu

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu/runner"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/internal/expression"
)

// config is backendConfig.
type config struct {
	Module module `json:"module"`
	// Variables are values for the module's variables, with CEL expressions between "${" and "}". Expressions can use self, which is the
	// instance with metadata.name and spec. Values of tenants are data: tofu does not evaluate them.
	Variables map[string]any `json:"variables,omitempty"`
	// Outputs are names of outputs that become fields of the status of instances. Sensitive outputs are refused.
	Outputs []string `json:"outputs,omitempty"`
	// Connection are names of outputs, sensitive or not, that the tenant gets in a Secret.
	Connection []string `json:"connection,omitempty"`
	// DriftInterval is how often the infrastructure is compared with the module; nil means never.
	DriftInterval *metav1.Duration `json:"driftInterval,omitempty"`
	// AutoApply enables the repair of differences; otherwise they are only reported.
	AutoApply bool `json:"autoApply,omitempty"`
	runSettings
}

// module is the root module.
type module struct {
	// Inline contains the files by name.
	Inline map[string]string `json:"inline,omitempty"`
	// Source and Version are refused: content of a registry cannot be checked before instances use it.
	Source  string `json:"source,omitempty"`
	Version string `json:"version,omitempty"`
}

// runSettings configure runs. They are not part of the revision: a change of them starts no run.
type runSettings struct {
	// Image is the image of the runner; empty means that of the provider.
	Image string `json:"image,omitempty"`
	// Timeout bounds a run; nil means 30 minutes.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// Resources are the resources of the container; defaultResources returns the defaults.
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
	// Credentials are names of Secrets in the namespace of the backend. Their keys become environment variables of runs.
	Credentials []string `json:"credentials,omitempty"`
	// Retain keeps the infrastructure of deleted instances, and their state.
	Retain bool `json:"retain,omitempty"`
}

// fileName matches names of files of a module, which are keys of a Secret without directories.
var fileName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

const (
	lockFile = ".terraform.lock.hcl"
	// maxModule bounds the files, which share a Secret with the variables.
	maxModule = 512 << 10
)

// parseConfig parses and validates backendConfig. Errors name the field.
func parseConfig(t *infrastructurev1alpha1.Template, unrestricted bool) (*config, error) {
	parsed := &config{}
	if err := backend.DecodeConfig(t, "module", parsed); err != nil {
		return nil, err
	}
	return parsed, parsed.validate(field.NewPath("spec", "backendConfig"), unrestricted).ToAggregate()
}

func (c *config) validate(path *field.Path, unrestricted bool) field.ErrorList {
	errs := c.Module.validate(path.Child("module"))
	for _, name := range slices.Sorted(maps.Keys(c.Variables)) {
		errs = append(errs, expression.ValidateExpand(c.Variables[name], path.Child("variables").Key(name))...)
	}
	if c.DriftInterval != nil && c.DriftInterval.Duration <= 0 {
		errs = append(errs, field.Invalid(path.Child("driftInterval"), c.DriftInterval.Duration.String(), "must be positive"))
	}
	if c.AutoApply && c.DriftInterval == nil {
		errs = append(errs, field.Required(path.Child("driftInterval"), "autoApply repairs what is found at this interval"))
	}
	if c.Timeout != nil && c.Timeout.Seconds() < 1 {
		errs = append(errs, field.Invalid(path.Child("timeout"), c.Timeout.Duration.String(), "must be at least one second"))
	}
	errs = append(errs, c.runSettings.validate(path)...)
	if len(errs) > 0 {
		return errs
	}
	found, errs := inspect(c.Module.Inline, path.Child("module", "inline"), unrestricted)
	if len(errs) > 0 {
		return errs
	}
	return c.compare(found, path)
}

// validate returns what every API server would refuse in a Job, and invalid names of Secrets.
func (s *runSettings) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.TrimSpace(s.Image) != s.Image {
		errs = append(errs, field.Invalid(path.Child("image"), s.Image, "must not begin or end with white space"))
	}
	for i, name := range s.Credentials {
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(path.Child("credentials").Index(i), name, problem))
		}
	}
	resources := path.Child("resources")
	for _, list := range []struct {
		name       string
		quantities corev1.ResourceList
	}{{"limits", s.Resources.Limits}, {"requests", s.Resources.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(list.quantities)) {
			at, quantity := resources.Child(list.name).Key(string(name)), list.quantities[name]
			for _, problem := range validation.IsQualifiedName(string(name)) {
				errs = append(errs, field.Invalid(at, string(name), problem))
			}
			if quantity.Sign() < 0 {
				errs = append(errs, field.Invalid(at, quantity.String(), "must not be negative"))
			}
			if limit, found := s.Resources.Limits[name]; list.name == "requests" && found && quantity.Cmp(limit) > 0 {
				errs = append(errs, field.Invalid(at, quantity.String(), "must be at most the limit, "+limit.String()))
			}
		}
	}
	if len(s.Resources.Claims) > 0 {
		errs = append(errs, field.Forbidden(resources.Child("claims"), "runs have no resource claims"))
	}
	return errs
}

func (m *module) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if m.Source != "" || m.Version != "" {
		errs = append(errs, field.Forbidden(path.Child("source"), "modules of registries are not supported, because they cannot be checked before instances use them; put the files into inline"))
	}
	if len(m.Inline) == 0 {
		return append(errs, field.Required(path.Child("inline"), "the files of the module by name"))
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(m.Inline)) {
		at := path.Child("inline").Key(name)
		size += len(m.Inline[name])
		switch {
		case name == lockFile:
		case !fileName.MatchString(name) || len(name) > 200:
			errs = append(errs, field.Invalid(at, name, "must be a file name without directory"))
		case strings.HasPrefix(name, "atoll"):
			errs = append(errs, field.Invalid(at, name, "names that begin with atoll are used by the backend"))
		case strings.HasSuffix(name, ".tfvars"), strings.HasSuffix(name, ".tfvars.json"):
			errs = append(errs, field.Forbidden(at, "values of variables are in variables"))
		case isOverride(name):
			errs = append(errs, field.Forbidden(at, "files that override others are not supported"))
		}
	}
	if size > maxModule {
		errs = append(errs, field.TooLong(path.Child("inline"), "", maxModule))
	}
	return errs
}

// isOverride reports whether tofu merges a file into others.
func isOverride(name string) bool {
	stem := strings.TrimSuffix(name, ".json")
	if ext := strings.TrimSuffix(strings.TrimSuffix(stem, ".tf"), ".tofu"); ext != stem {
		return ext == "override" || strings.HasSuffix(ext, "_override")
	}
	return false
}

// compare compares the configuration with the declarations of the module.
func (c *config) compare(found *declarations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(c.Variables)) {
		if _, ok := found.variables[name]; !ok {
			errs = append(errs, field.NotSupported(path.Child("variables").Key(name), name, slices.Sorted(maps.Keys(found.variables))))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found.variables)) {
		if _, ok := c.Variables[name]; !ok && found.variables[name].required {
			errs = append(errs, field.Required(path.Child("variables").Key(name), "the variable has no default"))
		}
	}
	for _, list := range []struct {
		name      string
		outputs   []string
		sensitive bool
	}{{"outputs", c.Outputs, false}, {"connection", c.Connection, true}} {
		seen := map[string]bool{}
		for i, name := range list.outputs {
			at := path.Child(list.name).Index(i)
			declared, ok := found.outputs[name]
			switch {
			case !ok:
				errs = append(errs, field.NotSupported(at, name, slices.Sorted(maps.Keys(found.outputs))))
			case instance.IsCommonField(name) && !list.sensitive:
				errs = append(errs, field.Forbidden(at, "this field of the status is written by the platform"))
			case seen[name]:
				errs = append(errs, field.Duplicate(at, name))
			case declared.sensitive && !list.sensitive:
				errs = append(errs, field.Forbidden(at, "the output is sensitive, and everybody who can read an instance can read its status; list it in connection"))
			}
			seen[name] = true
		}
	}
	return errs
}

// inputs are the inputs of the runs of an instance. A Secret stores them until the instance is gone, so that it can be destroyed with them
// regardless of changes to the Template.
type inputs struct {
	// files contain the module and the variables.
	files    map[string]string
	settings storedSettings
}

// storedSettings are the settings of runs in the Secret of the inputs.
type storedSettings struct {
	runner.Settings
	Run runSettings `json:"run"`
}

// inputs returns the inputs of an instance.
func (c *config) inputs(self map[string]any) (*inputs, error) {
	variables := map[string]any{}
	if len(c.Variables) > 0 {
		expanded, err := expression.Expand(c.Variables, self, nil)
		if err != nil {
			return nil, fmt.Errorf("variables: %w", err)
		}
		variables = expanded.(map[string]any)
	}
	text, err := json.Marshal(variables)
	if err != nil {
		return nil, err
	}
	i := &inputs{files: maps.Clone(c.Module.Inline), settings: storedSettings{Run: c.runSettings}}
	i.files[runner.VariablesKey] = string(text)
	i.settings.Outputs, i.settings.Connection = c.Outputs, c.Connection
	i.settings.Revision, err = i.revision()
	return i, err
}

// revision returns a hash of everything that a run applies, without the settings of the run.
func (i *inputs) revision() (string, error) {
	text, err := json.Marshal([]any{i.files, i.settings.Outputs, i.settings.Connection}) // keys are sorted
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:10]), nil
}
