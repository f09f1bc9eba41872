package workspaces

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// endpointURLs is the key of the URLs, one per line.
const endpointURLs = "urls"

// Known are all endpoints that a client of an export has ever used. An endpoint that the slice no longer lists may still serve objects, so
// that an object does not exist only if none of them has it.
type Known struct {
	config     *rest.Config
	remembered Remembered

	mu    sync.Mutex
	byURL map[string]*Endpoint
	// complete is true if no other endpoints exist: the slice is valid, and byURL contains its endpoints and those used before.
	complete bool
}

// NewKnown returns no endpoints before Use. config has the credentials, remembered stores the URLs.
func NewKnown(config *rest.Config, remembered Remembered) *Known {
	return &Known{config: config, remembered: remembered, byURL: map[string]*Endpoint{}}
}

// Use stores the URLs of a valid slice, connects to them and to all that were used before, and returns the endpoints of the slice by URL.
func (k *Known) Use(ctx context.Context, urls []string) (map[string]*Endpoint, error) {
	all, err := k.remembered.Add(ctx, urls)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.connect(all); err != nil {
		return nil, err
	}
	current := map[string]*Endpoint{}
	for _, url := range urls {
		current[url] = k.byURL[strings.TrimSuffix(url, "/")]
	}
	k.complete = true
	return current, nil
}

// Read connects to the URLs of a valid slice and to all that were used before, without storing anything, and returns the endpoints.
func (k *Known) Read(ctx context.Context, urls []string) ([]*Endpoint, error) {
	all, err := k.remembered.All(ctx)
	if err != nil {
		return nil, err
	}
	for _, url := range urls {
		all = append(all, strings.TrimSuffix(url, "/"))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.connect(all); err != nil {
		return nil, err
	}
	return k.sorted(), nil
}

// connect adds the endpoints at URLs. Callers must hold k.mu.
func (k *Known) connect(urls []string) error {
	for _, url := range urls {
		if k.byURL[url] != nil {
			continue
		}
		endpoint, err := NewEndpoint(k.config, url)
		if err != nil {
			return err
		}
		k.byURL[url] = endpoint
	}
	return nil
}

// sorted returns the endpoints, sorted by URL. Callers must hold k.mu.
func (k *Known) sorted() []*Endpoint {
	all := make([]*Endpoint, 0, len(k.byURL))
	for _, url := range slices.Sorted(maps.Keys(k.byURL)) {
		all = append(all, k.byURL[url])
	}
	return all
}

// SetIncomplete records that the slice is not valid, so that other endpoints may exist until the next Use.
func (k *Known) SetIncomplete() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.complete = false
}

// Evidence returns all endpoints, and false if others may exist: then no object can be proved not to exist.
func (k *Known) Evidence() ([]*Endpoint, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sorted(), k.complete && len(k.byURL) > 0
}

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
