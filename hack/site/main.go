// Command site builds the documentation site out of docs/ with Hugo, and checks all its links. Run it in its own folder:
//
//	site build --out ../../bin/site
//	site serve
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gohugoio/hugo/commands"
	"github.com/spf13/cobra"
)

// root is the folder of the repository.
const root = "../.."

func main() {
	if err := newCommand().Execute(); err != nil {
		os.Exit(1) // cobra has printed the error
	}
}

func newCommand() *cobra.Command {
	var repository, version string
	cmd := &cobra.Command{Use: "site", Short: "Build the documentation site", SilenceUsage: true}
	cmd.PersistentFlags().StringVar(&repository, "repository", "https://github.com/atoll-dev/atoll/blob/main/", "URL below which the files of the repository are, with a slash at its end")
	cmd.PersistentFlags().StringVar(&version, "version", "", "version that the pages show; none if empty")
	var out string
	build := &cobra.Command{
		Use: "build", Short: "Build the site, and fail for broken links", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pages, err := build(out, repository, version)
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%d pages are in %s; open index.html there\n", pages, out)
			}
			return err
		},
	}
	build.Flags().StringVar(&out, "out", root+"/bin/site", "directory of the result; what else is in it is removed")
	serve := &cobra.Command{
		Use: "serve", Short: "Serve the site on this machine, and follow changes of its files", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return hugo(repository, version, "server", "--noBuildLock", "--renderToMemory")
		},
	}
	cmd.AddCommand(build, serve)
	return cmd
}

// build builds the site and returns the number of its pages.
func build(out, repository, version string) (int, error) {
	if err := hugo(repository, version, "build", "--destination", out, "--cleanDestinationDir", "--noBuildLock", "--panicOnWarning", "--quiet"); err != nil {
		return 0, fmt.Errorf("building the site: %w", err)
	}
	pages, problems, err := check(out, repository)
	if err != nil {
		return 0, fmt.Errorf("checking the site: %w", err)
	}
	more, err := checkMarkdown(root)
	if err != nil {
		return 0, fmt.Errorf("checking the files outside of docs/: %w", err)
	}
	if problems = append(problems, more...); len(problems) > 0 {
		return 0, errors.New(strings.Join(problems, "\n"))
	}
	return pages, nil
}

// hugo runs Hugo with hugo.yaml of this folder, the URL of the repository, and the version.
func hugo(repository, version string, args ...string) error {
	directory, err := os.MkdirTemp("", "site-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	settings, err := json.Marshal(map[string]any{"params": map[string]string{"repository": repository, "version": version}})
	if err != nil {
		return err
	}
	file := filepath.Join(directory, "repository.json")
	if err := os.WriteFile(file, settings, 0o600); err != nil {
		return err
	}
	return commands.Execute(append(args, "--config", "hugo.yaml,"+file))
}
