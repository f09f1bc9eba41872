package options

import (
	"errors"

	"github.com/spf13/pflag"
)

// OpenTofu contains the flags of the backend opentofu.
type OpenTofu struct {
	// Image is the image of the runner; empty disables the backend.
	Image string
	// Namespace is the namespace of the runtime cluster for credentials of runs and states of retained instances.
	Namespace string
	// AllowPrograms allows modules that run programs or load other modules.
	AllowPrograms bool
}

func (o *OpenTofu) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Image, "opentofu-image", o.Image, "image with tofu-runner and tofu, for Templates of the backend opentofu; by default, there is no such backend")
	flags.StringVar(&o.Namespace, "opentofu-namespace", o.Namespace, "namespace of the runtime cluster with the Secrets that Templates name as credentials, and for the states of instances that are retained; by default, Templates can have neither")
	flags.BoolVar(&o.AllowPrograms, "opentofu-allow-programs", o.AllowPrograms, "allow modules with provisioners, data of external, or child modules: they run programs, unknown before, with the credentials of runs")
}

func (o *OpenTofu) validate() error {
	switch {
	case o.Image != "":
		return nil
	case o.AllowPrograms:
		return errors.New("--opentofu-allow-programs: is used with --opentofu-image only")
	case o.Namespace != "":
		return errors.New("--opentofu-namespace: is used with --opentofu-image only")
	}
	return nil
}
