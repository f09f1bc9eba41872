package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// WriteArchive writes an image as a tar in the format of `docker save`, which containerd, podman and kind import. The file appears when
// it is complete. The name is the canonical one, with registry and tag ("docker.io/local/atoll:dev"): a kubelet looks up images by their
// canonical name, and would not find a short one.
func WriteArchive(path, reference string, image v1.Image) error {
	tag, err := parse(reference)
	if err != nil {
		return fmt.Errorf("image %q: %w", reference, err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".image-*")
	if err != nil {
		return fmt.Errorf("image %q: creating %s: %w", reference, path, err)
	}
	defer os.Remove(file.Name())
	if err := errors.Join(tarball.Write(tag, image, file), file.Chmod(0o644), file.Close()); err != nil {
		return fmt.Errorf("image %q: writing %s: %w", reference, path, err)
	}
	return os.Rename(file.Name(), path)
}

func parse(reference string) (name.Tag, error) {
	registry, _, found := strings.Cut(reference, "/")
	if !found || !strings.ContainsAny(registry, ".:") {
		return name.Tag{}, errors.New("the name must be canonical and start with a registry, as in docker.io/local/name:tag")
	}
	return name.NewTag(reference, name.StrictValidation)
}
