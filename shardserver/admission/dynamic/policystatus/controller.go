// Package policystatus implements the controller that type-checks the expressions of validating admission policies
// against the types that the policy's logical cluster serves, and writes the warnings to the status of the policy. The
// evaluation of policies does not depend on it.
package policystatus

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	conversion "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"

	"github.com/atoll-dev/atoll/shardserver/admission/dynamic"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// name is the name of the controller and its field manager, as upstream.
const name = "validatingadmissionpolicy-status"

var policies = admissionregistration.Resource("validatingadmissionpolicies")

// Config configures the controller.
type Config struct {
	Registry *storage.Registry
	// Kubernetes is a client that writes in the logical cluster of its context.
	Kubernetes kubernetes.Interface
	// Schemas resolves the types of every logical cluster.
	Schemas *dynamic.Schemas
}

type statusController struct {
	Config
	policies *storage.Reader[*admissionregistration.ValidatingAdmissionPolicy]
}

// Controller returns the controller, one for all logical clusters.
func Controller(config Config) controller.Controller {
	c := &statusController{config, storage.NewReader[*admissionregistration.ValidatingAdmissionPolicy](config.Registry, policies)}
	return controller.Controller{
		Name:                    name,
		Sources:                 []controller.Source{{Resource: policies, MapFunc: mapUnchecked}},
		MaxConcurrentReconciles: 2, // checking is CPU-bound and not urgent
		Reconcile:               c.reconcile,
	}
}

// mapUnchecked returns the key of a policy whose current generation has not been checked.
func mapUnchecked(event watch.Event) []controller.Request {
	policy, ok := event.Object.(*admissionregistration.ValidatingAdmissionPolicy)
	if !ok || event.Type == watch.Deleted || isChecked(policy) {
		return nil
	}
	return controller.RequestForObject(event)
}

func isChecked(policy *admissionregistration.ValidatingAdmissionPolicy) bool {
	return policy.Generation <= policy.Status.ObservedGeneration
}

func (c *statusController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	stored, err := c.policies.Get(ctx, "", key.Name)
	if apierrors.IsNotFound(err) || (err == nil && isChecked(stored)) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	policy := &validating.Policy{}
	if err := conversion.Convert_admissionregistration_ValidatingAdmissionPolicy_To_v1_ValidatingAdmissionPolicy(stored.DeepCopy(), policy, nil); err != nil {
		return controller.Result{}, fmt.Errorf("converting policy %q: %w", key.Name, err)
	}
	types := clusterTypes{ctx: ctx, config: c.Config}
	checker := validating.TypeChecker{SchemaResolver: types, RestMapper: types}
	var warnings []*v1.ExpressionWarningApplyConfiguration
	for _, warning := range checker.Check(policy) {
		warnings = append(warnings, v1.ExpressionWarning().WithFieldRef(warning.FieldRef).WithWarning(warning.Warning))
	}
	status := v1.ValidatingAdmissionPolicyStatus().
		WithObservedGeneration(policy.Generation).
		WithTypeChecking(v1.TypeChecking().WithExpressionWarnings(warnings...))
	_, err = c.Kubernetes.AdmissionregistrationV1().ValidatingAdmissionPolicies().ApplyStatus(ctx,
		v1.ValidatingAdmissionPolicy(policy.Name).WithStatus(status), metav1.ApplyOptions{FieldManager: name, Force: true})
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, fmt.Errorf("writing the status of policy %q: %w", key.Name, err)
	}
	return controller.Result{}, nil
}

// clusterTypes provides the types of one logical cluster, that of its context, to the type checker.
type clusterTypes struct {
	meta.RESTMapper
	// ctx is that of a reconciliation, because upstream's interfaces have no context parameter.
	ctx    context.Context
	config Config
}

// ResolveSchema implements resolver.SchemaResolver.
func (t clusterTypes) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	return t.config.Schemas.Resolve(t.ctx, kind)
}

// KindsFor implements what the type checker uses of meta.RESTMapper.
func (t clusterTypes) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	served, err := t.config.Registry.Resolve(t.ctx, resource.GroupResource())
	if err != nil {
		return nil, err
	}
	if served == nil {
		return nil, &meta.NoResourceMatchError{PartialResource: resource}
	}
	// The checker skips a version that is not served, since it has no schema.
	return []schema.GroupVersionKind{served.Kind.GroupKind().WithVersion(resource.Version)}, nil
}
