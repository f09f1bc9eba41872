package kro

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubernetes-sigs/kro/pkg/graph"
	kroruntime "github.com/kubernetes-sigs/kro/pkg/runtime"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
)

// valuesError means that the values of an instance do not result in valid objects: the next attempt would fail, too.
type valuesError struct{ error }

func (e *valuesError) Unwrap() error { return e.error }

// Apply implements instance.Handler.
func (b *Backend) Apply(ctx context.Context, inst instance.Instance) (instance.State, error) {
	compiled, err := b.graphs.get(inst.Template)
	if _, isMistake := errors.AsType[*mistakeError](err); isMistake {
		return instance.State{}, fmt.Errorf("%w: %w", instance.ErrUnusableTemplate, err)
	}
	if err != nil {
		return instance.State{}, err
	}
	set := runtimecluster.SetOf(inst)
	set.Version = compiled.version
	state, err := b.apply(ctx, inst, set, compiled)
	refusal, refused := runtimecluster.Refusal(err)
	if _, ok := errors.AsType[*valuesError](err); ok {
		refusal, refused = runtimecluster.InvalidValues(), true
	}
	if refused {
		log.FromContext(ctx).Info("An instance cannot be applied", "template", inst.Template.Name, "err", err)
		return refusal, nil
	}
	return state, err
}

// reconciliation is one reconciliation of an instance.
type pass struct {
	*compiled
	cluster     *runtimecluster.Cluster
	application *runtimecluster.Application
	runtime     *kroruntime.Runtime
	set         runtimecluster.Set
	// ignored are the resources that the instance does not include.
	ignored map[string]bool
	// objects is the number of objects of the instance.
	objects int
}

func (b *Backend) apply(ctx context.Context, inst instance.Instance, set runtimecluster.Set, c *compiled) (_ instance.State, err error) {
	defer recoverError(&err)
	application, err := b.Cluster.Begin(ctx, set)
	if err != nil {
		return instance.State{}, err
	}
	projected := project(inst, application.NamespaceUID())
	// The limits of kro's own command are larger.
	limits := graph.Config{MaxCollectionSize: maxCollection, MaxCollectionDimensionSize: maxDimensions}
	evaluated, err := kroruntime.FromGraph(c.graph, limits, kroruntime.WithInstance(projected))
	if err != nil {
		return instance.State{}, fmt.Errorf("preparing the evaluation: %w", err)
	}
	p := &pass{compiled: c, cluster: b.Cluster, application: application, runtime: evaluated, set: set, ignored: map[string]bool{}}
	complete, err := p.converge(ctx)
	if err != nil {
		return instance.State{}, err
	}
	if complete {
		// Prune only after all resources are resolved, because pending ones may be wanted.
		if err := application.Prune(ctx); err != nil {
			return instance.State{}, err
		}
	}
	return p.state(ctx, complete), nil
}

// converge applies and reads resources in the order of their dependencies. It reports whether it could resolve all.
func (p *pass) converge(ctx context.Context) (complete bool, err error) {
	pending := p.runtime.Nodes()
	for len(pending) > 0 {
		resolved, left, err := p.resolve(pending)
		if err != nil {
			return false, err
		}
		if len(left) == len(pending) {
			return false, nil
		}
		if err := p.observe(ctx, resolved); err != nil {
			return false, err
		}
		pending = left
	}
	return true, nil
}

// resolve returns the nodes whose objects can be computed, and those that are pending. It records the others as ignored.
func (p *pass) resolve(nodes []*kroruntime.Node) (resolved, pending []*kroruntime.Node, err error) {
	for _, node := range nodes {
		ignored, err := node.IsIgnored()
		if err == nil && !ignored {
			_, err = node.GetDesired()
		}
		switch {
		case err == nil && ignored:
			p.ignored[node.Spec.Meta.ID] = true
		case err == nil:
			resolved = append(resolved, node)
		case kroruntime.IsDataPending(err) && len(node.Spec.Meta.Dependencies) > 0:
			pending = append(pending, node)
		default:
			// A value that depends only on the instance will not appear later.
			return nil, nil, &valuesError{err}
		}
	}
	return resolved, pending, nil
}

// observe applies or reads the objects of nodes, and sets the observed state of the nodes.
func (p *pass) observe(ctx context.Context, nodes []*kroruntime.Node) error {
	var wanted []*unstructured.Unstructured
	for _, node := range nodes {
		if isRead(node) {
			continue
		}
		desired, err := node.GetDesired()
		if err != nil {
			return err
		}
		for _, object := range desired {
			wanted = append(wanted, withoutMarks(object))
		}
	}
	if p.objects += len(wanted); p.objects > maxObjects {
		return &valuesError{fmt.Errorf("the instance would have more than %d objects", maxObjects)}
	}
	applied, err := p.application.Apply(ctx, wanted)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		desired, err := node.GetDesired()
		if err != nil {
			return err
		}
		if isRead(node) {
			if err := p.read(ctx, node, desired[0]); err != nil {
				return err
			}
			continue
		}
		node.SetObserved(applied[:len(desired)])
		applied = applied[len(desired):]
	}
	return nil
}

func isRead(node *kroruntime.Node) bool {
	return node.Spec.Meta.Type == graph.NodeTypeExternal || node.Spec.Meta.Type == graph.NodeTypeExternalCollection
}

// read reads the object that a node refers to, in the namespace of the tenant regardless of the node. If it does not exist, the instance waits.
func (p *pass) read(ctx context.Context, node *kroruntime.Node, reference *unstructured.Unstructured) error {
	if node.Spec.Meta.Type == graph.NodeTypeExternal {
		object, err := p.cluster.Get(ctx, p.set.Tenant, reference.GroupVersionKind(), reference.GetName())
		if object != nil {
			node.SetObserved([]*unstructured.Unstructured{object})
		}
		return err
	}
	fields, _, err := unstructured.NestedMap(reference.Object, "metadata", "selector")
	if err != nil {
		return &valuesError{err}
	}
	labelSelector := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, labelSelector); err != nil {
		return &valuesError{fmt.Errorf("resource %q: the selector: %w", node.Spec.Meta.ID, err)}
	}
	selector, err := metav1.LabelSelectorAsSelector(labelSelector)
	if err != nil {
		return &valuesError{fmt.Errorf("resource %q: the selector: %w", node.Spec.Meta.ID, err)}
	}
	objects, err := p.cluster.List(ctx, p.set.Tenant, reference.GroupVersionKind(), selector, maxCollection)
	if err != nil {
		return err
	}
	node.SetObserved(objects)
	return nil
}
