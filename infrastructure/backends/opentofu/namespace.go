package opentofu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu/runner"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
)

// credentials reads Secrets of the namespace of the backend, and returns their content as environment variables of a run. The backend reads
// them for each run, so that the next run uses rotated credentials.
func (b *Backend) credentials(ctx context.Context, names []string) (map[string][]byte, error) {
	environment := map[string][]byte{}
	for i, name := range names {
		at := fmt.Sprintf("spec.backendConfig.credentials[%d]", i)
		if b.namespace == "" {
			return nil, fmt.Errorf("%s: the backend has no namespace", at)
		}
		secret := &corev1.Secret{}
		if err := b.Cluster.Client.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: name}, secret); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
			if problems := validation.IsEnvVarName(key); len(problems) > 0 {
				return nil, fmt.Errorf("%s: key %q of Secret %s/%s: %s", at, key, b.namespace, name, strings.Join(problems, "; "))
			}
			if key == "KUBECONFIG" {
				return nil, fmt.Errorf("%s: key %q of Secret %s/%s would replace the credentials of the runner; use the one that your provider has", at, key, b.namespace, name)
			}
			environment[key] = secret.Data[key]
		}
	}
	return environment, nil
}

// labelRetained is the label key of Secrets with states of retained instances, below the API group of the provider.
const labelRetained = "retained"

// retainState copies the state of an instance whose infrastructure is retained to the namespace of the backend. The name of the copy contains
// the UID of the state, so that there is only one copy.
func (b *Backend) retainState(ctx context.Context, set runtimecluster.Set, state *corev1.Secret) error {
	if state == nil || len(state.Data[runner.StateKey]) == 0 {
		return nil
	}
	if b.namespace == "" {
		return errors.New("the backend has no namespace for the state of an instance that is retained")
	}
	name := nameOf(set) + "-" + string(state.UID)
	retained := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name, Labels: map[string]string{b.group + "/" + labelRetained: "true"}, Annotations: map[string]string{
			b.group + "/cluster": set.Tenant.String(), b.group + "/template": set.Template, b.group + "/instance": set.Instance,
		}},
		Data: state.Data,
	}
	if err := b.Cluster.Client.Create(ctx, retained); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("retaining the state: %w", err)
	}
	b.log.Info("The infrastructure of an instance is retained", "cluster", set.Tenant, "template", set.Template, "instance", set.Instance, "state", b.namespace+"/"+name)
	return nil
}
