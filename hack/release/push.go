package main

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"
)

func newPushCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "push LAYOUT REPOSITORY",
		Short: "Push the image of a release, and what is attached to it, to a registry",
		Long: `Pushes all that the OCI layout has, and the tag of the release. Digests are those of the release. Credentials are those that docker, podman
or skopeo have stored. A registry without an API for referrers gets a tag with their list.`,
		Example: "  release push dist/image mirror.example.org/atoll",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			pushed, err := push(cmd.Context(), args[0], args[1])
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), pushed)
			}
			return err
		},
	}
}

// push copies a layout to a repository. It returns the name of the image in the repository.
func push(ctx context.Context, directory, repository string) (string, error) {
	path, err := layout.FromPath(directory)
	if err != nil {
		return "", err
	}
	to, err := name.NewRepository(repository)
	if err != nil {
		return "", err
	}
	top, err := path.ImageIndex()
	if err != nil {
		return "", err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return "", err
	}
	pusher, err := remote.NewPusher(remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return "", err
	}
	image := ""
	for _, descriptor := range manifest.Manifests { // the image is the first, before the documents that refer to it
		content, reference, err := find(top, to, descriptor)
		if err != nil {
			return "", err
		}
		if err := pusher.Push(ctx, reference, content); err != nil {
			return "", fmt.Errorf("pushing %s: %w", reference, err)
		}
		if _, tagged := reference.(name.Tag); tagged {
			image = reference.String() + "@" + descriptor.Digest.String()
		}
	}
	return image, nil
}

// find returns the object of a descriptor of the layout, and its name in the repository: the tag, if it has one.
func find(top v1.ImageIndex, to name.Repository, descriptor v1.Descriptor) (remote.Taggable, name.Reference, error) {
	var reference name.Reference = to.Digest(descriptor.Digest.String())
	if tag := descriptor.Annotations["org.opencontainers.image.ref.name"]; tag != "" {
		reference = to.Tag(tag)
	}
	if descriptor.MediaType.IsIndex() {
		index, err := top.ImageIndex(descriptor.Digest)
		return index, reference, err
	}
	image, err := top.Image(descriptor.Digest)
	return image, reference, err
}
