package manifests

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	sigsyaml "sigs.k8s.io/yaml"
)

// Format is how objects are printed: "yaml" or "json".
type Format string

var formats = []cobra.Completion{"yaml", "json"}

// Bind adds --output to a command.
func (f *Format) Bind(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(f), "output", "o", "yaml", "Format of the output: yaml or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// Validate checks the value of the flag.
func (f Format) Validate() error {
	if f != "yaml" && f != "json" {
		return fmt.Errorf("invalid value %q for --output; valid values are json, yaml", f)
	}
	return nil
}

// Write prints one object and its separator.
func (f Format) Write(out io.Writer, object any) error {
	content, err := sigsyaml.Marshal(object)
	if f == "json" {
		if content, err = json.MarshalIndent(object, "", "    "); err == nil {
			content = append(content, '\n')
		}
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s---\n", content)
	return err
}
