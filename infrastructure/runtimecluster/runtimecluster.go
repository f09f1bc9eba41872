// Package runtimecluster is for backends whose instances are objects in a Kubernetes cluster. It provides a namespace for each tenant,
// applies and prunes objects as a set, deletes them by an inventory that does not depend on the Template, and removes the remains of
// deleted tenants.
//
// Tenants see nothing of this and choose no namespace: all objects of an instance are in the namespace of its tenant.
package runtimecluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/infrastructure/shortname"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Owner is the field manager of applied objects, and the value of the label managed-by.
const Owner = "infrastructure-provider"

// Cluster is a runtime cluster, used by one backend.
type Cluster struct {
	// Client is a client without a cache: the backend reads the objects of an instance when it reconciles the instance.
	Client client.Client
	// Group is the API group of the provider and the prefix of labels; Backend is the name of the backend.
	Group, Backend string
	// Defaults configure the namespaces of tenants.
	Defaults Defaults

	provider atomic.Pointer[string] // nil until SetProvider
}

// Set identifies the objects of one instance.
type Set struct {
	Tenant logicalcluster.Name
	// Template is the name of the Template; Version is its version.
	Template, Version string
	// Instance is the name of the instance.
	Instance string
}

// Hash identifies the set in the namespace of its tenant. Names of objects may contain it.
func (s Set) Hash() string {
	sum := sha256.Sum256([]byte(s.Template + "/" + s.Instance))
	return hex.EncodeToString(sum[:10])
}

// Namespace returns the namespace of a tenant: the name of its logical cluster.
func Namespace(tenant logicalcluster.Name) string { return tenant.String() }

func (c *Cluster) label(name string) string { return c.Group + "/" + name }

// Labels of objects.
const (
	labelTenant   = "cluster"
	labelTemplate = "template"
	labelVersion  = "template-version"
	labelInstance = "instance"
	labelBackend  = "backend"
	labelProvider = "provider"
	// labelKind distinguishes inventories from ConfigMaps of instances.
	labelKind     = "kind"
	kindInventory = "inventory"

	managedBy = "app.kubernetes.io/managed-by"
)

// labels returns the labels of every object of a set.
func (c *Cluster) labels(s Set) map[string]string {
	return map[string]string{
		managedBy:              Owner,
		c.label(labelTenant):   s.Tenant.String(),
		c.label(labelTemplate): shortname.Of(s.Template, shortname.Label),
		c.label(labelVersion):  shortname.LabelValue(s.Version),
		c.label(labelInstance): shortname.Of(s.Instance, shortname.Label),
		c.label(labelBackend):  c.Backend,
	}
}

// annotations returns the annotations of every object of a set. They contain the full names, which may be too long for labels.
func (c *Cluster) annotations(s Set) map[string]string {
	return map[string]string{c.label(labelTemplate): s.Template, c.label(labelInstance): s.Instance}
}

// Selector selects the objects of a set.
func (c *Cluster) Selector(s Set) labels.Selector {
	selected := c.labels(s)
	delete(selected, c.label(labelVersion)) // an object has the version of its last change
	return labels.SelectorFromSet(selected)
}

// Sets returns the sets of this backend in the namespace of a tenant.
func (c *Cluster) Sets(ctx context.Context, tenant logicalcluster.Name) ([]Set, error) {
	return c.allSets(ctx, client.InNamespace(Namespace(tenant)))
}

// allSets returns the sets of this backend.
func (c *Cluster) allSets(ctx context.Context, options ...client.ListOption) ([]Set, error) {
	inventories, err := c.inventories(ctx, append(options, client.MatchingLabels{c.label(labelBackend): c.Backend})...)
	if err != nil {
		return nil, err
	}
	var sets []Set
	for i := range inventories {
		found := &inventories[i]
		tenant, err := logicalcluster.ParseName(found.Labels[c.label(labelTenant)])
		if err != nil || Namespace(tenant) != found.Namespace {
			continue
		}
		if c.provider.Load() == nil {
			return nil, errUnidentified
		}
		if !c.isOwn(found) {
			continue
		}
		sets = append(sets, Set{Tenant: tenant, Template: found.Annotations[c.label(labelTemplate)], Version: found.Labels[c.label(labelVersion)], Instance: found.Annotations[c.label(labelInstance)]})
	}
	return sets, nil
}

// ensureNamespace creates the namespace of a tenant, and returns its UID. It refuses a namespace that does not belong to this provider: the
// name of a logical cluster is not a secret, and a tenant must not be able to place objects in a namespace of another owner.
func (c *Cluster) ensureNamespace(ctx context.Context, tenant logicalcluster.Name) (types.UID, error) {
	namespace := &corev1.Namespace{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: Namespace(tenant)}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace(tenant), Labels: c.namespaceLabels(tenant)}}
		if err := c.Client.Create(ctx, namespace); err != nil {
			return "", fmt.Errorf("creating the namespace of a tenant: %w", err)
		}
	case err != nil:
		return "", fmt.Errorf("reading the namespace of a tenant: %w", err)
	case namespace.Labels[c.label(labelTenant)] != tenant.String():
		return "", fmt.Errorf("namespace %s is not a provider's", namespace.Name)
	case namespace.DeletionTimestamp != nil:
		return "", fmt.Errorf("namespace %s is being deleted", namespace.Name)
	}
	if err := c.adopt(ctx, "namespace", namespace); err != nil {
		return "", err
	}
	return namespace.UID, c.ensureDefaults(ctx, namespace)
}

// Tenants returns the logical clusters in whose namespaces this backend has inventories, and those whose namespaces have none. It omits
// tenants of other backends only, and namespaces without the mark of this provider.
func (c *Cluster) Tenants(ctx context.Context) ([]logicalcluster.Name, error) {
	var namespaces corev1.NamespaceList
	if err := c.Client.List(ctx, &namespaces, client.MatchingLabels{managedBy: Owner}, client.HasLabels{c.label(labelTenant)}); err != nil {
		return nil, fmt.Errorf("listing namespaces of tenants: %w", err)
	}
	inventories, err := c.inventories(ctx)
	if err != nil {
		return nil, err
	}
	used, own := map[string]bool{}, map[string]bool{}
	for i := range inventories {
		used[inventories[i].Namespace] = true
		if c.isOfBackend(&inventories[i]) {
			own[inventories[i].Namespace] = true
		}
	}
	var tenants []logicalcluster.Name
	for i := range namespaces.Items {
		name := namespaces.Items[i].Name
		if !c.isOwn(&namespaces.Items[i]) || namespaces.Items[i].DeletionTimestamp != nil || used[name] && !own[name] {
			continue
		}
		tenant, err := logicalcluster.ParseName(namespaces.Items[i].Labels[c.label(labelTenant)])
		if err == nil && Namespace(tenant) == name {
			tenants = append(tenants, tenant)
		}
	}
	return tenants, nil
}

// inventories returns the inventories of all backends and providers.
func (c *Cluster) inventories(ctx context.Context, options ...client.ListOption) ([]corev1.ConfigMap, error) {
	var list corev1.ConfigMapList
	options = append(options, client.MatchingLabels{managedBy: Owner, c.label(labelKind): kindInventory})
	if err := c.Client.List(ctx, &list, options...); err != nil {
		return nil, fmt.Errorf("listing inventories: %w", err)
	}
	return list.Items, nil
}

// Purge deletes all sets of this backend in the namespace of a tenant, and then the namespace if other backends and providers have no
// inventory in it. The next call handles what still exists. An error of one instance does not stop the others.
func (c *Cluster) Purge(ctx context.Context, tenant logicalcluster.Name) error {
	namespace := &corev1.Namespace{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: Namespace(tenant)}, namespace); err != nil {
		return client.IgnoreNotFound(err)
	}
	if namespace.Labels[c.label(labelTenant)] != tenant.String() || namespace.Labels[managedBy] != Owner || !c.isOwn(namespace) {
		return fmt.Errorf("namespace %s is not this provider's", namespace.Name)
	}
	inventories, err := c.inventories(ctx, client.InNamespace(namespace.Name))
	if err != nil {
		return err
	}
	left, errs := 0, []error(nil)
	for i := range inventories {
		found := &inventories[i]
		if !c.isOfBackend(found) {
			left++
			continue
		}
		set := Set{Tenant: tenant, Template: found.Labels[c.label(labelTemplate)], Instance: found.Labels[c.label(labelInstance)]}
		gone, err := c.deleteSet(ctx, set, found)
		if err != nil {
			errs = append(errs, err)
		}
		if !gone {
			left++
		}
	}
	if err := errors.Join(errs...); err != nil || left > 0 {
		return err
	}
	uid := namespace.UID
	return client.IgnoreNotFound(c.Client.Delete(ctx, namespace, client.Preconditions{UID: &uid}))
}
