package main

import (
	"fmt"
	"io"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/spf13/cobra"

	"github.com/atoll-dev/atoll/hack/release/image"
)

func newFilesCommand() *cobra.Command {
	root := "."
	cmd := &cobra.Command{
		Use:   "files BINARY...",
		Short: "Write the files of an image of binaries as a tar, for container engines",
		Long: `Writes the files that the image of a release has, with these binaries, to the standard output: the Dockerfile builds the same
image with them.`,
		Example: "  release files --root . bin/kcp bin/operator | tar -xpC /rootfs",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeImageFiles(cmd.OutOrStdout(), root, args)
		},
	}
	cmd.Flags().StringVar(&root, "root", root, "directory of the sources")
	return cmd
}

func newLicensesCommand() *cobra.Command {
	root := "."
	cmd := &cobra.Command{
		Use:   "licenses BINARY...",
		Short: "Write the licenses of what binaries are made of",
		Long: `Writes the licenses.txt that the image of a release has, with these binaries, to the standard output. Fails for a module without a
license that permits redistribution.`,
		Example: "  release licenses --root . bin/kcp bin/operator >licenses.txt",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := release{root: root}
			if err := r.readBinaries(args); err != nil {
				return err
			}
			_, err := cmd.OutOrStdout().Write(notices(r.licenses))
			return err
		},
	}
	cmd.Flags().StringVar(&root, "root", root, "directory of the sources")
	return cmd
}

// writeImageFiles writes the files of an image as a tar.
func writeImageFiles(out io.Writer, root string, binaries []string) error {
	r := release{root: root}
	if err := r.readBinaries(binaries); err != nil {
		return err
	}
	built, err := image.Build(image.Options{
		Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, Binaries: binaries, Notices: notices(r.licenses), Created: time.Unix(0, 0).UTC(), OneLayer: true,
	})
	if err != nil {
		return err
	}
	files := mutate.Extract(built)
	defer files.Close()
	if _, err := io.Copy(out, files); err != nil {
		return fmt.Errorf("writing the files of the image: %w", err)
	}
	return nil
}
