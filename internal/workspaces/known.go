package workspaces

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// endpointURLs is the key of the URLs, one per line.
const endpointURLs = "urls"

// Remembered are the URLs of all endpoints that a client of an export has ever used. An endpoint that the slice no longer lists may still
// have objects, no matter which process has used it. They are stored in a Secret, because sync agents have no permission for other kinds
// in their namespace.
type Remembered struct {
	Client client.Client
	// Key is the key of the Secret.
	Key client.ObjectKey
}

// All returns the URLs, sorted.
func (r *Remembered) All(ctx context.Context) ([]string, error) {
	urls, _, err := r.read(ctx)
	return urls, err
}

// Add stores URLs before they are used, and returns all. Other processes may do the same concurrently.
func (r *Remembered) Add(ctx context.Context, urls []string) (all []string, err error) {
	raced := func(err error) bool { return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) }
	err = retry.OnError(retry.DefaultRetry, raced, func() error {
		all, err = r.add(ctx, urls)
		return err
	})
	return all, err
}

func (r *Remembered) add(ctx context.Context, urls []string) ([]string, error) {
	before, secret, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(before)
	for _, url := range urls {
		all = append(all, strings.TrimSuffix(url, "/"))
	}
	slices.Sort(all)
	if all = slices.Compact(all); slices.Equal(all, before) {
		return all, nil
	}
	secret.Data = map[string][]byte{endpointURLs: []byte(strings.Join(all, "\n"))}
	if secret.ResourceVersion == "" {
		err = r.Client.Create(ctx, secret)
	} else {
		err = r.Client.Update(ctx, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the endpoints to Secret %s: %w", r.Key, err)
	}
	return all, nil
}

func (r *Remembered) read(ctx context.Context) ([]string, *corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.Client.Get(ctx, r.Key, secret)
	if apierrors.IsNotFound(err) {
		return nil, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Key.Namespace, Name: r.Key.Name}}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the endpoints in Secret %s: %w", r.Key, err)
	}
	return strings.Fields(string(secret.Data[endpointURLs])), secret, nil
}
