// Package backup is the library behind "kubectl kcp backup" and "kubectl kcp restore": it creates, lists and follows the Backups and Restores of
// an installation in the cluster of its operator. It reads neither stores nor Secrets: the operator does.
package backup

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// host is a namespace of the cluster with the operator.
type host struct {
	server, namespace string
	client            dynamic.Interface
}

func open(flags *connection.Flags) (*host, error) {
	session, err := flags.Open()
	if err != nil {
		return nil, err
	}
	namespace, err := session.Namespace()
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(session.Config())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &host{session.URL(), namespace, client}, nil
}

func (h *host) resource(name string) dynamic.ResourceInterface {
	return h.client.Resource(operatorv1alpha1.SchemeGroupVersion.WithResource(name)).Namespace(h.namespace)
}

func (h *host) backups() dynamic.ResourceInterface  { return h.resource("backups") }
func (h *host) restores() dynamic.ResourceInterface { return h.resource("restores") }

// explain adds to an error what was done, and finds a context that is not that of a cluster with the operator.
func (h *host) explain(err error, doing string) error {
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("%s: %s has no kinds of %s, expected the cluster with the operator: select it with --context or --kubeconfig", doing, h.server, operatorv1alpha1.SchemeGroupVersion)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// create creates an object, and returns what the server has made of it.
func create[T any](ctx context.Context, resource dynamic.ResourceInterface, kind string, object *T) (*T, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	created := &unstructured.Unstructured{Object: content}
	created.SetGroupVersionKind(operatorv1alpha1.SchemeGroupVersion.WithKind(kind))
	if created, err = resource.Create(ctx, created, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	return decode[T](created)
}

func get[T any](ctx context.Context, resource dynamic.ResourceInterface, name string) (*T, error) {
	object, err := resource.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return decode[T](object)
}

func decode[T any](object *unstructured.Unstructured) (*T, error) {
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, out); err != nil {
		return nil, fmt.Errorf("decoding %s %q: %w", object.GetKind(), object.GetName(), err)
	}
	return out, nil
}

// checkName refuses a path of a workspace, which people expect where other commands have it.
func checkName(kind, name string) error {
	if strings.Contains(name, ":") {
		return fmt.Errorf("got %q, expected the name of a %s. Whole installations are saved; to restore a workspace, set --workspace of kubectl kcp restore create", name, kind)
	}
	return nil
}

// stateOf describes a Backup or Restore in a line.
func stateOf(phase string, conditions []metav1.Condition) string {
	if phase == "" {
		phase = string(operatorv1alpha1.BackupPhasePending)
	}
	if completed := meta.FindStatusCondition(conditions, operatorv1alpha1.ConditionCompleted); completed != nil && completed.Message != "" {
		return phase + ": " + completed.Message
	}
	return phase
}
