package options

import (
	"errors"

	"github.com/spf13/pflag"
)

// OpenTofu are the flags of the backend opentofu.
type OpenTofu struct {
	// Image is the image of the runner; empty: there is no such backend.
	Image string
	// AllowPrograms allows modules that run programs or load other modules.
	AllowPrograms bool
}

func (o *OpenTofu) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Image, "opentofu-image", o.Image, "image with tofu-runner and tofu, for Templates of the backend opentofu; by default, there is no such backend")
	flags.BoolVar(&o.AllowPrograms, "opentofu-allow-programs", o.AllowPrograms, "allow modules with provisioners, data of external, or child modules: they run programs with the credentials of runs, which nobody has seen before")
}

func (o *OpenTofu) validate() error {
	if o.Image == "" && o.AllowPrograms {
		return errors.New("--opentofu-allow-programs: is used with --opentofu-image only")
	}
	return nil
}
