// Package state records what the agent last wrote, so that the syncer can distinguish later changes of the source from changes that
// others made to a copy. One Secret per primary object in the agent's namespace on the service cluster contains the contents and the
// related objects; it is a Secret because it includes the contents of Secrets. Nothing is cached in memory between two passes.
package state

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

const (
	// annotationCopy is the key of the copy of the primary object, as JSON.
	annotationCopy = publication.Prefix + "copy"
	// relatedKey is the key of the list of related objects in the data.
	relatedKey = "related-objects"
)

// Client is the client interface of the service cluster that the store needs.
type Client interface {
	client.Reader
	client.Writer
}

// Store reads and writes the states of all primary objects of an agent.
type Store struct {
	Client Client
	// Namespace is the namespace of the agent.
	Namespace string
	AgentName string
}

// ForeignError means that a state belongs to another agent, which uses the same namespace and syncs an object of the same name.
type ForeignError struct {
	Secret types.NamespacedName
	Agent  string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("Secret %s is the state of agent %q: agents on one service cluster that sync objects of one kind need namespaces of their own", e.Secret, e.Agent)
}

// Selector returns the label selector of the states of an agent.
func Selector(agentName string) string {
	return publication.LabelObjectState + "=true," + publication.LabelStateAgent + "=" + agentName
}

// Primary identifies a primary object in a workspace.
type Primary struct {
	Cluster logicalcluster.Name
	schema.GroupVersionKind
	types.NamespacedName
}

// State is the state of one primary object. Callers change it in memory; Save writes it.
type State struct {
	name   types.NamespacedName
	labels map[string]string
	// read is the Secret on the server, or nil if it does not exist.
	read *corev1.Secret

	copy     string
	contents map[string][]byte
	related  []Related
	// relatedKnown means that the list of related objects is complete.
	relatedKnown bool
	// previous is the name of a Secret of api-syncagent, or empty.
	previous string
}

// SecretName returns the name of the Secret of a primary object.
func SecretName(primary Primary) string {
	apiVersion, kind := primary.ToAPIVersionAndKind()
	identity, _ := json.Marshal(struct { // four strings can always be encoded
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Namespace  string `json:"namespace"`
		Name       string `json:"name"`
	}{apiVersion, kind, primary.Namespace, primary.Name})
	return fmt.Sprintf("obj-state-%s-%s", primary.Cluster, expression.ShortHash(string(identity)))
}

// Load reads the state of a primary object. A state that does not exist is empty. labels are the labels of the object's copy.
func (s Store) Load(ctx context.Context, primary Primary, labels map[string]string) (*State, error) {
	state := &State{
		name:   types.NamespacedName{Namespace: s.Namespace, Name: SecretName(primary)},
		labels: map[string]string{publication.LabelObjectState: "true", publication.LabelStateAgent: s.AgentName}, contents: map[string][]byte{},
	}
	maps.Copy(state.labels, labels)
	secret := &corev1.Secret{}
	switch err := s.Client.Get(ctx, state.name, secret); {
	case apierrors.IsNotFound(err):
		return state, nil
	case err != nil:
		return nil, fmt.Errorf("reading the state in Secret %s: %w", state.name, err)
	}
	if agent := secret.Labels[publication.LabelStateAgent]; agent != "" && agent != s.AgentName {
		return nil, &ForeignError{state.name, agent}
	}
	state.decode(secret)
	return state, nil
}

func (s *State) decode(secret *corev1.Secret) {
	s.read = secret
	s.copy = secret.Annotations[annotationCopy]
	s.previous = PreviousName(secret)
	for key, value := range secret.Data {
		if key != relatedKey {
			s.contents[key] = value
			continue
		}
		s.relatedKnown = json.Unmarshal(value, &s.related) == nil
		if !s.relatedKnown {
			s.related = nil
		}
	}
}

// Exists reports whether the state exists on the server.
func (s *State) Exists() bool { return s.read != nil }

// Copy returns the key of the copy of the primary object, and whether one is recorded.
func (s *State) Copy() (key types.NamespacedName, recorded bool) {
	k, recorded := s.copyKey()
	return types.NamespacedName{Namespace: k.Namespace, Name: k.Name}, recorded
}

// SetCopy records the key of the copy of the primary object.
func (s *State) SetCopy(key types.NamespacedName) {
	s.setCopy(copyKey{Namespace: key.Namespace, Name: key.Name, UID: s.CopyUID()})
}

// CopyUID returns the UID of the copy, if it is known. An object that an administrator creates in its place has another UID.
func (s *State) CopyUID() types.UID {
	k, _ := s.copyKey()
	return k.UID
}

// SetCopyUID records the UID of the copy. It does nothing if the key of the copy is not recorded.
func (s *State) SetCopyUID(uid types.UID) {
	if k, recorded := s.copyKey(); recorded {
		k.UID = uid
		s.setCopy(k)
	}
}

func (s *State) setCopy(k copyKey) {
	encoded, _ := json.Marshal(k) // strings can always be encoded
	s.copy = string(encoded)
}

func (s *State) copyKey() (k copyKey, recorded bool) {
	if s.copy == "" || json.Unmarshal([]byte(s.copy), &k) != nil || k.Name == "" {
		return copyKey{}, false
	}
	return k, true
}

type copyKey struct {
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
}

// Save writes the state if it differs from the version that Load read.
func (s Store) Save(ctx context.Context, state *State) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: state.name.Namespace, Name: state.name.Name}}
	if state.read != nil {
		secret = state.read.DeepCopy()
	}
	if err := state.encode(secret); err != nil {
		return err
	}
	var err error
	switch {
	case state.read == nil:
		err = s.Client.Create(ctx, secret)
	case equality.Semantic.DeepEqual(secret, state.read):
		return nil
	default:
		err = s.Client.Update(ctx, secret)
	}
	if apierrors.IsAlreadyExists(err) || state.read != nil && apierrors.IsNotFound(err) {
		err = apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, state.name.Name, err)
	}
	if err != nil {
		return fmt.Errorf("writing the state in Secret %s: %w", state.name, err)
	}
	state.read = secret
	return nil
}

func (s *State) encode(secret *corev1.Secret) error {
	if secret.Labels == nil {
		secret.Labels = map[string]string{}
	}
	maps.Copy(secret.Labels, s.labels)
	if s.copy != "" {
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, annotationCopy, s.copy)
	} else {
		delete(secret.Annotations, annotationCopy)
	}
	if s.previous != "" {
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, annotationPrevious, s.previous)
	}
	var list []byte
	if s.relatedKnown {
		var err error
		if list, err = json.Marshal(s.related); err != nil {
			return fmt.Errorf("encoding the related objects: %w", err)
		}
	}
	data, size := fit(s.contents, len(list))
	if size > corev1.MaxSecretSize {
		return fmt.Errorf("the object has more related objects (%d) than its state can list", len(s.related))
	}
	if s.relatedKnown {
		data[relatedKey] = list
	}
	secret.Data = data
	return nil
}

// Delete deletes the state, after the Secret of api-syncagent from which it was created.
func (s Store) Delete(ctx context.Context, state *State) error {
	if state.previous != "" {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: state.previous}}
		if err := s.Client.Delete(ctx, secret); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the state of api-syncagent in Secret %s/%s: %w", s.Namespace, state.previous, err)
		}
	}
	if state.read == nil {
		return nil
	}
	err := s.Client.Delete(ctx, state.read, client.Preconditions{UID: &state.read.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the state in Secret %s: %w", state.name, err)
	}
	*state = State{name: state.name, labels: state.labels, contents: map[string][]byte{}}
	return nil
}

// keys returns the keys of the contents, the largest content first.
func keys(contents map[string][]byte) []string {
	return slices.SortedFunc(maps.Keys(contents), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(contents[b]), len(contents[a])), cmp.Compare(a, b))
	})
}

// RemoveCopy removes the key of the copy.
func (s *State) RemoveCopy() { s.copy = "" }
