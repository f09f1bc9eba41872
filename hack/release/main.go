// Command release creates a release from built binaries: images for all platforms as an OCI layout with bills of materials and
// provenance, charts, definitions, plug-ins, notes and checksums. The same commit results in the same bytes everywhere.
package main

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// semantic matches versions that are also valid for charts.
var semantic = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

func main() {
	if err := newCommand().Execute(); err != nil {
		os.Exit(1) // cobra has printed the error
	}
}

func newCommand() *cobra.Command {
	r := &release{}
	var created int64
	cmd := &cobra.Command{
		Use:          "release",
		Short:        "Make a release out of built binaries",
		Example:      "  release --version v1.0.0 --commit $(git rev-parse HEAD) --created $(git log -1 --format=%ct) --repository registry.example.org/atoll --binaries bin/release --root . --out dist",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !semantic.MatchString(r.version) {
				return fmt.Errorf("--version: got %q, expected a semantic version, as in v1.0.0", r.version)
			}
			r.created = time.Unix(created, 0).UTC()
			r.url = strings.TrimSuffix(cmp.Or(r.url, source+"/releases/download/"+r.version), "/")
			r.progress = func(format string, args ...any) { fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...) }
			return r.run()
		},
	}
	cmd.AddCommand(newPushCommand(), newFilesCommand(), newLicensesCommand())
	flags := cmd.Flags()
	flags.StringVar(&r.version, "version", "", "version, as in v1.0.0 (required)")
	flags.StringVar(&r.commit, "commit", "", "hash of the commit that the binaries are built from (required)")
	flags.Int64Var(&created, "created", 0, "time of the commit, in seconds since 1970 (required)")
	flags.StringVar(&r.repository, "repository", "", "repository of the image, as in registry.example.org/atoll (required)")
	flags.StringVar(&r.url, "url", "", "address that users download the files of the release from, for krew (default: that of GitHub)")
	flags.StringVar(&r.binaries, "binaries", "", "directory with a folder <os>_<architecture> for each platform; those but linux have plug-ins only (required)")
	flags.StringVar(&r.root, "root", ".", "directory of the sources")
	flags.StringVar(&r.out, "out", "dist", "directory of the results")
	flags.StringSliceVar(&r.servers, "servers", nil, "names of the programs in the image (required)")
	flags.StringSliceVar(&r.plugins, "plugins", nil, "names of the plug-ins of kubectl (required)")
	for _, name := range []string{"version", "commit", "created", "repository", "binaries", "servers", "plugins"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a bug in this function
		}
	}
	return cmd
}
