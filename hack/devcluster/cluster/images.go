package cluster

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/atoll-dev/atoll/hack/release/image"
)

// ensureSystemImages imports the images of the cluster itself, built from the cached programs.
func (c *Cluster) ensureSystemImages(ctx context.Context) error {
	present, err := c.listImages(ctx)
	if err != nil {
		return err
	}
	for name, program := range map[string]string{pauseImage: "pause", corednsImage: "coredns"} {
		if slices.Contains(present, name) {
			continue
		}
		if err := c.importProgram(ctx, name, c.Tools.Binary(program)); err != nil {
			return err
		}
	}
	return nil
}

// importProgram imports an image of one program.
func (c *Cluster) importProgram(ctx context.Context, name, binary string) error {
	built, err := image.Build(image.Options{
		Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, Binaries: []string{binary}, Created: time.Unix(0, 0).UTC(), OneLayer: true,
	})
	if err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	archive := c.path("image.tar")
	defer os.Remove(archive)
	if err := image.WriteArchive(archive, name, built); err != nil {
		return err
	}
	return c.importImages(ctx, archive)
}

// LoadImage imports the images of a Docker-style archive. It fails when one of the expected names is missing
// afterwards.
func (c *Cluster) LoadImage(ctx context.Context, archive string, expected ...string) error {
	if _, alive := c.runningPID("containerd"); !alive {
		return fmt.Errorf("no cluster with state folder %s: bring it up first", c.State)
	}
	if err := c.importImages(ctx, archive); err != nil {
		return err
	}
	present, err := c.listImages(ctx)
	if err != nil {
		return err
	}
	for _, name := range expected {
		if !slices.Contains(present, name) {
			return fmt.Errorf("%s was imported, but brought no image %q; the cluster has:\n  %s", archive, name, strings.Join(present, "\n  "))
		}
	}
	return nil
}

func (c *Cluster) importImages(ctx context.Context, archive string) error {
	_, err := c.ctr(ctx, "images", "import", "--snapshotter", selectSnapshotter(c.State), archive)
	return err
}

// listImages returns the names of the images in the cluster.
func (c *Cluster) listImages(ctx context.Context) ([]string, error) {
	out, err := c.ctr(ctx, "images", "list", "--quiet")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strings.Fields(out), func(name string) bool { return strings.HasPrefix(name, "sha256:") }), nil
}
