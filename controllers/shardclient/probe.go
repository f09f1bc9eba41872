package shardclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// probeLabel marks the workspaces that Probe creates in root. Its value is the name of their shard.
	probeLabel  = "operator.kcp.io/rollout-probe"
	probePrefix = "rollout-probe-"
	// probeTimeout bounds one probe, from creating the workspace to reading from it.
	probeTimeout = 20 * time.Second
	probePoll    = 200 * time.Millisecond
)

var (
	workspacesResource = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
	configMapsResource = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// Probe creates a workspace on one shard through the internal proxy, writes an object in it, reads it there and through front proxies,
// and deletes the workspace. It uses the workspace of a previous failed probe again. It probes a shard that accepts no new workspaces
// directly, in the logical cluster system:shard. The error names the step that failed, and is the same for each attempt.
func (c *Clients) Probe(ctx context.Context, shard desired.Shard, proxies ...desired.Proxy) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	schedulable, err := c.isSchedulable(ctx, shard)
	switch {
	case err != nil:
		return err
	case schedulable:
		return c.probeWorkspace(ctx, shard.Root(), shard.ShardName(), proxies)
	}
	return c.withShard(ctx, shard, logicalcluster.Shard.Path(), func(client dynamic.Interface) error {
		value, err := writeProbeObject(ctx, client)
		if err != nil {
			return err
		}
		return waitForObject(ctx, client, value)
	})
}

// isSchedulable reports whether new workspaces may be scheduled to a shard: it is neither cordoned nor full.
func (c *Clients) isSchedulable(ctx context.Context, shard desired.Shard) (bool, error) {
	schedulable := false
	err := c.withRoot(ctx, shard.Root(), func(client dynamic.Interface) error {
		object, err := client.Resource(shardsResource).Get(ctx, shard.ShardName(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading the shard: %w", err)
		}
		found := &corev1alpha1.Shard{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, found); err != nil {
			return fmt.Errorf("reading shard %s: %w", shard.ShardName(), err)
		}
		_, cordoned := found.Annotations[corev1alpha1.UnschedulableAnnotationKey]
		schedulable = !cordoned && !conditionsv1alpha1.IsFalse(found, corev1alpha1.ShardSchedulable)
		return nil
	})
	return schedulable, err
}

// probeWorkspace probes with a workspace that it creates through the internal proxy.
func (c *Clients) probeWorkspace(ctx context.Context, root *operatorv1alpha1.RootShard, shard string, proxies []desired.Proxy) error {
	return c.withProxy(ctx, root, logicalcluster.Root.Path(), func(rootClient dynamic.Interface) error {
		workspaces := rootClient.Resource(workspacesResource)
		probe, err := ensureProbeWorkspace(ctx, workspaces, shard)
		if err != nil {
			return fmt.Errorf("creating a workspace: %w", err)
		}
		if err := waitForWorkspace(ctx, workspaces, probe); err != nil {
			return err
		}
		path := logicalcluster.Root.Path().Join(probe)
		value := ""
		err = c.withProxy(ctx, root, path, func(client dynamic.Interface) (err error) {
			if value, err = writeProbeObject(ctx, client); err != nil {
				return err
			}
			return waitForObject(ctx, client, value)
		})
		if err != nil {
			return err
		}
		for _, proxy := range proxies {
			if err := c.readThroughProxy(ctx, proxy, path, value); err != nil {
				return Errorf("through FrontProxy %s: %s", proxy.Name(), StableMessage(err))
			}
		}
		if err := workspaces.Delete(ctx, probe, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting a workspace: %w", err)
		}
		return nil
	})
}

// ensureProbeWorkspace returns a workspace that a failed probe left, or creates one.
func ensureProbeWorkspace(ctx context.Context, workspaces dynamic.ResourceInterface, shard string) (string, error) {
	existing, err := workspaces.List(ctx, metav1.ListOptions{LabelSelector: probeLabel + "=" + shard})
	if err != nil {
		return "", err
	}
	for _, workspace := range existing.Items {
		if workspace.GetDeletionTimestamp() == nil {
			return workspace.GetName(), nil
		}
	}
	desiredWorkspace := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"type":     map[string]any{"name": "universal", "path": logicalcluster.Root.String()},
			"location": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"name": shard}}},
		},
	}}
	desiredWorkspace.SetGroupVersionKind(tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace"))
	desiredWorkspace.SetGenerateName(probePrefix)
	desiredWorkspace.SetLabels(map[string]string{probeLabel: shard})
	created, err := workspaces.Create(ctx, desiredWorkspace, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return created.GetName(), nil
}

func waitForWorkspace(ctx context.Context, workspaces dynamic.ResourceInterface, name string) error {
	return poll(ctx, "a workspace does not become ready", func(ctx context.Context) error {
		workspace, err := workspaces.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		phase, _, _ := unstructured.NestedString(workspace.Object, "status", "phase")
		if phase != "Ready" {
			return Errorf("its phase is %q", phase)
		}
		return nil
	})
}

// readThroughProxy reads the object of a probe through a front proxy.
func (c *Clients) readThroughProxy(ctx context.Context, proxy desired.Proxy, path logicalcluster.Path, value string) error {
	config, httpClient, err := c.connectPinned(ctx, proxy.Root(), pki.OperatorCertificate(proxy.Root()), proxy.ServiceURL(), proxy.Certificate("server"))
	if err != nil {
		return err
	}
	return withClient(config, httpClient, path, func(client dynamic.Interface) error { return waitForObject(ctx, client, value) })
}

// probeObjectName is the ConfigMap that probes write.
const probeObjectName = "rollout-probe"

// writeProbeObject writes a new value, and returns it. It retries: the proxy indexes a workspace, and the workspace has
// its default namespace, a moment after it is ready.
func writeProbeObject(ctx context.Context, client dynamic.Interface) (string, error) {
	value := string(uuid.NewUUID())
	intent := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"written":%q}}`, probeObjectName, value)
	force := true
	return value, poll(ctx, "an object cannot be written", func(ctx context.Context) error {
		_, err := client.Resource(configMapsResource).Namespace(metav1.NamespaceDefault).Patch(
			ctx, probeObjectName, types.ApplyPatchType, []byte(intent), metav1.PatchOptions{FieldManager: probeObjectName, Force: &force})
		return err
	})
}

// waitForObject retries until it reads the value, because each proxy has its own index.
func waitForObject(ctx context.Context, client dynamic.Interface, value string) error {
	return poll(ctx, "an object cannot be read", func(ctx context.Context) error {
		object, err := client.Resource(configMapsResource).Namespace(metav1.NamespaceDefault).Get(ctx, probeObjectName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if found, _, _ := unstructured.NestedString(object.Object, "data", "written"); found != value {
			return Errorf("it does not have the value that was written")
		}
		return nil
	})
}

// poll retries until the context ends. Its error is what, with the last error that was not from the context.
func poll(ctx context.Context, message string, attempt func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, probePoll, true, func(ctx context.Context) (bool, error) {
		err := attempt(ctx)
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case last == nil:
		last = context.DeadlineExceeded
	}
	return Errorf("%s: %s", message, StableMessage(last))
}

// deleteProbes deletes the workspaces that failed probes left, by a selector of labels.
func (c *Clients) deleteProbes(ctx context.Context, root *operatorv1alpha1.RootShard, selector string) error {
	return c.withRoot(ctx, root, func(client dynamic.Interface) error {
		workspaces := client.Resource(workspacesResource)
		existing, err := workspaces.List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return fmt.Errorf("listing workspaces of probes: %w", err)
		}
		var errs []error
		for _, workspace := range existing.Items {
			if err := workspaces.Delete(ctx, workspace.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
}
