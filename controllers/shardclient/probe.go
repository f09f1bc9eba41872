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
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// probeLabel marks the workspaces that Probe makes in root. Its value is the shard that they are on.
	probeLabel  = "operator.kcp.io/rollout-probe"
	probePrefix = "rollout-probe-"
	// probeTimeout is how long a workspace may take from being wished for to being read.
	probeTimeout = 20 * time.Second
	probePoll    = 200 * time.Millisecond
)

var (
	workspacesResource = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
	configMapsResource = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// Probe makes a workspace on one shard, through the internal proxy, writes an object in it, reads it, there and through the
// front proxies that are given, and deletes the workspace. What a probe that failed has left, the next one uses. A shard that takes no new workspaces is asked directly,
// in the logical cluster that every shard has for itself. The error says which step failed, in words that stay the same.
func (c *Clients) Probe(ctx context.Context, shard desired.Shard, doors ...desired.Proxy) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	takes, err := c.schedulable(ctx, shard)
	switch {
	case err != nil:
		return err
	case takes:
		return c.probeThrough(ctx, shard.Root(), desired.InternalProxyURL(shard.Root()), shard.ShardName(), doors)
	}
	return c.withClusterAs(ctx, shard.Root(), shard.Certificate("client"), shard.BaseURL(), logicalcluster.Shard.Path(),
		func(inside dynamic.Interface) error {
			value, err := write(ctx, inside)
			if err != nil {
				return err
			}
			return read(ctx, inside, value)
		})
}

// schedulable says whether new workspaces may go to a shard: nobody keeps them off, and it is not full.
func (c *Clients) schedulable(ctx context.Context, shard desired.Shard) (bool, error) {
	takes := false
	err := c.withCluster(ctx, shard.Root(), desired.RootShardBaseURL(shard.Root()), logicalcluster.Root.Path(), func(client dynamic.Interface) error {
		object, err := client.Resource(shardsResource).Get(ctx, shard.ShardName(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("looking for the shard: %w", err)
		}
		found := &corev1alpha1.Shard{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, found); err != nil {
			return fmt.Errorf("reading shard %s: %w", shard.ShardName(), err)
		}
		_, cordoned := found.Annotations[corev1alpha1.UnschedulableAnnotationKey]
		takes = !cordoned && !conditionsv1alpha1.IsFalse(found, corev1alpha1.ShardSchedulable)
		return nil
	})
	return takes, err
}

// probeThrough probes with a workspace that is made through the proxy at url.
func (c *Clients) probeThrough(ctx context.Context, root *operatorv1alpha1.RootShard, url, shard string, doors []desired.Proxy) error {
	return c.withCluster(ctx, root, url, logicalcluster.Root.Path(), func(inRoot dynamic.Interface) error {
		workspaces := inRoot.Resource(workspacesResource)
		probe, err := probeWorkspace(ctx, workspaces, shard)
		if err != nil {
			return fmt.Errorf("making a workspace: %w", err)
		}
		if err := waitReady(ctx, workspaces, probe); err != nil {
			return err
		}
		path := logicalcluster.Root.Path().Join(probe)
		value := ""
		err = c.withCluster(ctx, root, url, path, func(inside dynamic.Interface) (err error) {
			if value, err = write(ctx, inside); err != nil {
				return err
			}
			return read(ctx, inside, value)
		})
		if err != nil {
			return err
		}
		for _, door := range doors {
			if err := c.readThroughProxy(ctx, door, path, value); err != nil {
				return Errorf("through FrontProxy %s: %s", door.Name(), StableMessage(err))
			}
		}
		if err := workspaces.Delete(ctx, probe, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting a workspace: %w", err)
		}
		return nil
	})
}

// probeWorkspace finds the workspace that an earlier probe has left, or makes one.
func probeWorkspace(ctx context.Context, workspaces dynamic.ResourceInterface, shard string) (string, error) {
	left, err := workspaces.List(ctx, metav1.ListOptions{LabelSelector: probeLabel + "=" + shard})
	if err != nil {
		return "", err
	}
	for _, workspace := range left.Items {
		if workspace.GetDeletionTimestamp() == nil {
			return workspace.GetName(), nil
		}
	}
	wanted := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"type":     map[string]any{"name": "universal", "path": logicalcluster.Root.String()},
			"location": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"name": shard}}},
		},
	}}
	wanted.SetGroupVersionKind(tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace"))
	wanted.SetGenerateName(probePrefix)
	wanted.SetLabels(map[string]string{probeLabel: shard})
	made, err := workspaces.Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.GetName(), nil
}

func waitReady(ctx context.Context, workspaces dynamic.ResourceInterface, name string) error {
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

// readThroughProxy reads, through a front proxy, what a probe has written.
func (c *Clients) readThroughProxy(ctx context.Context, door desired.Proxy, path logicalcluster.Path, value string) error {
	config, connections, err := c.connectPinned(ctx, door.Root(), door.ServiceURL(), door.Certificate("server"))
	if err != nil {
		return err
	}
	return withClient(config, connections, path, func(inside dynamic.Interface) error { return read(ctx, inside, value) })
}

// probeObject is the ConfigMap that probes write.
const probeObject = "rollout-probe"

// write writes what was never written before, and returns it. The proxy hears of a workspace, and the workspace has its
// default namespace, a moment after it is ready, so that it is tried again.
func write(ctx context.Context, inside dynamic.Interface) (string, error) {
	value := string(uuid.NewUUID())
	intent := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"written":%q}}`, probeObject, value)
	force := true
	return value, poll(ctx, "an object cannot be written", func(ctx context.Context) error {
		_, err := inside.Resource(configMapsResource).Namespace(metav1.NamespaceDefault).Patch(
			ctx, probeObject, types.ApplyPatchType, []byte(intent), metav1.PatchOptions{FieldManager: probeObject, Force: &force})
		return err
	})
}

// read reads it until it is what was written: each proxy hears of a workspace in its own time.
func read(ctx context.Context, inside dynamic.Interface, value string) error {
	return poll(ctx, "an object cannot be read", func(ctx context.Context) error {
		read, err := inside.Resource(configMapsResource).Namespace(metav1.NamespaceDefault).Get(ctx, probeObject, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if found, _, _ := unstructured.NestedString(read.Object, "data", "written"); found != value {
			return Errorf("it is not what was written")
		}
		return nil
	})
}

// poll tries until it works or the context ends. Its error is what, with the last error that was not the context's.
func poll(ctx context.Context, what string, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, probePoll, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
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
	return Errorf("%s: %s", what, StableMessage(last))
}

// removeProbes deletes the workspaces that failed probes have left on a shard.
func (c *Clients) removeProbes(ctx context.Context, root *operatorv1alpha1.RootShard, shard string) error {
	return c.withCluster(ctx, root, desired.RootShardBaseURL(root), logicalcluster.Root.Path(), func(client dynamic.Interface) error {
		workspaces := client.Resource(workspacesResource)
		left, err := workspaces.List(ctx, metav1.ListOptions{LabelSelector: probeLabel + "=" + shard})
		if err != nil {
			return fmt.Errorf("listing workspaces of probes: %w", err)
		}
		var failed []error
		for _, workspace := range left.Items {
			if err := workspaces.Delete(ctx, workspace.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				failed = append(failed, err)
			}
		}
		return errors.Join(failed...)
	})
}
