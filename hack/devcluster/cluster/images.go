package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/atoll-dev/atoll/hack/devcluster/imagetar"
)

// ensureSystemImages imports the images of the cluster itself, built from the cached programs.
func (c *Cluster) ensureSystemImages(ctx context.Context) error {
	present, err := c.listImages(ctx)
	if err != nil {
		return err
	}
	for _, image := range []imagetar.Image{
		{Name: pauseImage, Binaries: []string{c.Tools.Binary("pause")}},
		{Name: corednsImage, Binaries: []string{c.Tools.Binary("coredns")}},
	} {
		if slices.Contains(present, image.Name) {
			continue
		}
		archive := c.path("image.tar")
		if err := imagetar.WriteFile(archive, image); err != nil {
			return err
		}
		err := c.importImages(ctx, archive)
		if err := os.Remove(archive); err != nil {
			return err
		}
		if err != nil {
			return err
		}
	}
	return nil
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
