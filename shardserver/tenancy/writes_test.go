package tenancy_test

import (
	"context"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestWorkspaceWrites checks the writes of the creation and the deletion of a workspace, key by key, in all stores, and which of them are
// one transaction: each changed key is an event for every watch of the resource, and takes memory in watch caches; each transaction is an entry
// of etcd's log. A change that adds one must justify it. The keys that a new workspace leaves are those of its creation without a deletion, and their
// bytes are bounded. With -v the test logs the bytes that are stored.
func TestWorkspaceWrites(t *testing.T) {
	in := startEnv(t, "beta")
	for _, on := range []string{"root", "beta"} { // objects that exist once per shard are not part of a workspace
		in.waitSettled(t, in.createReady(t, "root", "root", "first-on-"+on, on), on)
	}
	begun := in.revisions(t)
	workspaces := map[string]*tenancyv1alpha1.Workspace{}
	for _, on := range []string{"root", "beta"} {
		workspaces[on] = in.createTogether(t, "on-"+on, on, togetherOn(on))
	}
	in.waitSettled(t, in.createReady(t, "root", "root", "last", "beta"), "beta") // so that late writes of the others are included
	created := in.writes(t, begun)

	removed, since := map[string]*tenancyv1alpha1.Workspace{}, map[string]map[string]int64{}
	for _, on := range []string{"root", "beta"} {
		removed[on], since[on] = in.deleteTogether(t, workspaces[on], on, deletedTogetherOn(on))
	}
	in.delete(t, "root", "root", "last")
	in.waitDeleted(t, "root", "root", "last")
	in.assertNothingPublished(t)

	for name, tc := range map[string]struct {
		writes    []storeWrite
		workspace *tenancyv1alpha1.Workspace
		want      []string
		// together are the transactions of several keys, transactions are all.
		together     []string
		transactions int
		// keys and maxBytes are what is stored afterwards.
		keys, maxBytes int
	}{
		"creation on the shard of its parent": {created, workspaces["root"], []string{
			"root: /registry/apis.kcp.io/apibindings/customresources/<cluster>/tenancy.kcp.io-<hash>: put",
			"root: /registry/apis.kcp.io/apibindings/customresources/<cluster>/topology.kcp.io-<hash>: put",
			"root: /registry/core.kcp.io/logicalclusters/customresources/<cluster>/cluster: put put",
			"root: /registry/core/configmaps/<cluster>/default/kube-root-ca.crt: put",
			"root: /registry/core/configmaps/<cluster>/kube-system/kube-root-ca.crt: put",
			"root: /registry/core/namespaces/<cluster>/default: put",
			"root: /registry/core/namespaces/<cluster>/kube-system: put",
			"root: /registry/core/serviceaccounts/<cluster>/default/default: put",
			"root: /registry/core/serviceaccounts/<cluster>/kube-system/default: put",
			"root: /registry/rbac.authorization.k8s.io/clusterrolebindings/<cluster>/workspace-admin: put",
			"root: /registry/tenancy.kcp.io/workspaces/<identity>/root/<workspace>: put put",
		}, togetherOn("root"), 6, 11, 16 << 10},
		"creation on another shard": {created, workspaces["beta"], []string{
			"beta: /registry/apis.kcp.io/apibindings/customresources/<cluster>/tenancy.kcp.io-<hash>: put",
			"beta: /registry/apis.kcp.io/apibindings/customresources/<cluster>/topology.kcp.io-<hash>: put",
			"beta: /registry/core.kcp.io/logicalclusters/customresources/<cluster>/cluster: put put",
			"beta: /registry/core/configmaps/<cluster>/default/kube-root-ca.crt: put",
			"beta: /registry/core/configmaps/<cluster>/kube-system/kube-root-ca.crt: put",
			"beta: /registry/core/namespaces/<cluster>/default: put",
			"beta: /registry/core/namespaces/<cluster>/kube-system: put",
			"beta: /registry/core/serviceaccounts/<cluster>/default/default: put",
			"beta: /registry/core/serviceaccounts/<cluster>/kube-system/default: put",
			"beta: /registry/rbac.authorization.k8s.io/clusterrolebindings/<cluster>/workspace-admin: put",
			"root: /cache/sharding.kcp.io/logicalclusterreports/customresources/beta/<cluster>/root.<workspace>: put put delete",
			"root: /cache/sharding.kcp.io/logicalclusterrequests/customresources/root/root/<workspace>.<cluster>: put put delete",
			"root: /registry/tenancy.kcp.io/workspaces/<identity>/root/<workspace>: put put",
		}, togetherOn("beta"), 12, 11, 16 << 10},
		"deletion on the shard of its parent": {in.writes(t, since["root"]), removed["root"], []string{
			"root: /registry/apis.kcp.io/apibindings/customresources/<cluster>/tenancy.kcp.io-<hash>: delete",
			"root: /registry/apis.kcp.io/apibindings/customresources/<cluster>/topology.kcp.io-<hash>: delete",
			"root: /registry/core.kcp.io/logicalclusters/customresources/<cluster>/cluster: put delete",
			"root: /registry/core/configmaps/<cluster>/default/kube-root-ca.crt: delete",
			"root: /registry/core/configmaps/<cluster>/kube-system/kube-root-ca.crt: delete",
			"root: /registry/core/namespaces/<cluster>/default: delete",
			"root: /registry/core/namespaces/<cluster>/kube-system: delete",
			"root: /registry/core/serviceaccounts/<cluster>/default/default: delete",
			"root: /registry/core/serviceaccounts/<cluster>/kube-system/default: delete",
			"root: /registry/rbac.authorization.k8s.io/clusterrolebindings/<cluster>/workspace-admin: delete",
			"root: /registry/tenancy.kcp.io/workspaces/<identity>/root/<workspace>: put delete",
		}, deletedTogetherOn("root"), 10, 0, 0},
		"deletion on another shard": {in.writes(t, since["beta"]), removed["beta"], []string{
			"beta: /registry/apis.kcp.io/apibindings/customresources/<cluster>/tenancy.kcp.io-<hash>: delete",
			"beta: /registry/apis.kcp.io/apibindings/customresources/<cluster>/topology.kcp.io-<hash>: delete",
			"beta: /registry/core.kcp.io/logicalclusters/customresources/<cluster>/cluster: put delete",
			"beta: /registry/core/configmaps/<cluster>/default/kube-root-ca.crt: delete",
			"beta: /registry/core/configmaps/<cluster>/kube-system/kube-root-ca.crt: delete",
			"beta: /registry/core/namespaces/<cluster>/default: delete",
			"beta: /registry/core/namespaces/<cluster>/kube-system: delete",
			"beta: /registry/core/serviceaccounts/<cluster>/default/default: delete",
			"beta: /registry/core/serviceaccounts/<cluster>/kube-system/default: delete",
			"beta: /registry/rbac.authorization.k8s.io/clusterrolebindings/<cluster>/workspace-admin: delete",
			"root: /cache/sharding.kcp.io/logicalclusterreports/customresources/beta/<cluster>/root.<workspace>: put put delete",
			"root: /cache/sharding.kcp.io/logicalclusterrequests/customresources/root/root/<workspace>.<cluster>: put delete",
			"root: /registry/tenancy.kcp.io/workspaces/<identity>/root/<workspace>: put put delete",
		}, deletedTogetherOn("beta"), 16, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, values, bytes := summarizeWrites(tc.writes, tc.workspace)
			t.Logf("stored afterwards, bytes of keys and values: %d\n%s", sum(bytes), sortedBySize(bytes))
			together, ordered := summarizeTransactions(tc.writes, tc.workspace)
			transactions := len(ordered)
			t.Logf("transactions, in the order of each shard:\n%s", strings.Join(ordered, "\n"))
			if late := slices.Index(got, lateDeletion); late >= 0 && slices.Contains(tc.want, promptDeletion) {
				t.Log("the deletion took so long that its phase was written") // on a machine that is busy
				got[late], transactions = promptDeletion, transactions-1
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("unexpected writes (-want +got):\n%s%s", diff, values)
			}
			if diff := cmp.Diff(tc.together, together); diff != "" || transactions != tc.transactions {
				t.Errorf("%d transactions, want %d; unexpected ones of several keys (-want +got):\n%s", transactions, tc.transactions, diff)
			}
			if len(bytes) != tc.keys || sum(bytes) > tc.maxBytes {
				t.Errorf("%d keys with %d bytes are stored, want %d with at most %d", len(bytes), sum(bytes), tc.keys, tc.maxBytes)
			}
		})
	}
}

// The writes of a Workspace by its deletion on the shard of its parent: prompt, and one in which the phase Deleting is written, too.
const (
	promptDeletion = "root: /registry/tenancy.kcp.io/workspaces/<identity>/root/<workspace>: put delete"
	lateDeletion   = "root: /registry/tenancy.kcp.io/workspaces/<identity>/root/<workspace>: put put delete"
)

// togetherOn returns the transactions of several keys that the creation of a workspace has on a shard.
func togetherOn(shard string) []string {
	return []string{
		shard + ": apibindings/tenancy.kcp.io clusterrolebindings/workspace-admin configmaps/default/kube-root-ca.crt namespaces/default serviceaccounts/default/default",
		shard + ": apibindings/topology.kcp.io configmaps/kube-system/kube-root-ca.crt namespaces/kube-system serviceaccounts/kube-system/default",
	}
}

// deletedTogetherOn returns the transactions of several keys that the deletion of a workspace has on a shard.
func deletedTogetherOn(shard string) []string {
	return []string{
		shard + ": configmaps/default/kube-root-ca.crt serviceaccounts/default/default",
		shard + ": configmaps/kube-system/kube-root-ca.crt namespaces/default serviceaccounts/kube-system/default",
	}
}

// createTogether creates a workspace until its objects are stored in the wanted transactions, thrice at most: on a machine that is busy,
// a creation can reach its storage after storage.MaxTogetherWait, and is stored alone.
func (e *env) createTogether(t *testing.T, name, on string, want []string) *tenancyv1alpha1.Workspace {
	t.Helper()
	for attempt := 1; ; attempt++ {
		begun := e.revisions(t)
		workspace := e.createByUser(t, fmt.Sprintf("%s-%d", name, attempt), on)
		e.waitSettled(t, workspace, on)
		together, _ := summarizeTransactions(e.writes(t, begun), workspace)
		if slices.Equal(want, together) || attempt == 3 {
			return workspace
		}
		t.Logf("workspace %s is stored in other transactions: %v", workspace.Name, together)
	}
}

// deleteTogether deletes a workspace and, until one is deleted in the wanted transactions, others, three at most: on a machine that is busy,
// the watch cache can lack an object of the deleted one, which is then deleted with requests. It returns the last one and the revisions before
// its deletion.
func (e *env) deleteTogether(t *testing.T, workspace *tenancyv1alpha1.Workspace, on string, want []string) (*tenancyv1alpha1.Workspace, map[string]int64) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		begun := e.revisions(t)
		e.delete(t, "root", "root", workspace.Name)
		e.waitDeleted(t, "root", "root", workspace.Name)
		together, _ := summarizeTransactions(e.writes(t, begun), workspace)
		if slices.Equal(want, together) || attempt == 3 {
			return workspace, begun
		}
		t.Logf("workspace %s is deleted in other transactions: %v", workspace.Name, together)
		workspace = e.createByUser(t, fmt.Sprintf("again-on-%s-%d", on, attempt), on)
		e.waitSettled(t, workspace, on)
	}
}

// createByUser creates a workspace below root, for which a user gets a binding in it, and waits until it is ready.
func (e *env) createByUser(t *testing.T, name, on string) *tenancyv1alpha1.Workspace {
	t.Helper()
	root := e.shards["root"]
	workspace := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}},
	}
	shardtesting.OnShard(on)(workspace)
	if err := root.Client(t, root.Admin(t)).Create(shardtesting.In(t.Context(), "root"), workspace); err != nil {
		t.Fatal(err)
	}
	return waitReady(t, e.clients["root"], "root", name)
}

// storeWrite is a write in the etcd of a shard.
type storeWrite struct {
	shard string
	shardtesting.Write
}

// isOf reports whether the key is that of a workspace, or in its logical cluster.
func (w storeWrite) isOf(workspace *tenancyv1alpha1.Workspace) bool {
	return strings.Contains(w.Key, workspace.Spec.Cluster) || strings.HasSuffix(w.Key, "/"+workspace.Name)
}

func (e *env) revisions(t *testing.T) map[string]int64 {
	t.Helper()
	revisions := map[string]int64{}
	for name, shard := range e.shards {
		revisions[name] = shard.Revision(t)
	}
	return revisions
}

func (e *env) writes(t *testing.T, after map[string]int64) []storeWrite {
	t.Helper()
	var all []storeWrite
	for name, shard := range e.shards {
		for _, write := range shard.Writes(t, after[name]) {
			all = append(all, storeWrite{name, write})
		}
	}
	return all
}

// waitSettled waits until a workspace has its default objects, and no shard publishes requests or reports of it any
// more.
func (e *env) waitSettled(t *testing.T, workspace *tenancyv1alpha1.Workspace, on string) {
	t.Helper()
	inside := shardtesting.In(t.Context(), workspace.Spec.Cluster)
	for _, namespace := range []string{"default", "kube-system"} {
		shardtesting.Eventually(t, "the content of namespace "+namespace, func(context.Context) error {
			if err := e.clients[on].Get(inside, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{}); err != nil {
				return err
			}
			return e.clients[on].Get(inside, client.ObjectKey{Namespace: namespace, Name: "kube-root-ca.crt"}, &corev1.ConfigMap{})
		})
	}
	e.assertNothingPublished(t)
}

// Keys contain identities of exports, and names of default bindings end with a hash.
var (
	identities = regexp.MustCompile(`/[0-9a-f]{64}/`)
	hashes     = regexp.MustCompile(`\.kcp\.io-[0-9a-z]+$`)
)

// summarizeWrites returns the writes of one workspace, one line per key, and the values in the order of the writes, as
// far as they can be decoded, and the sizes of the keys with their last values.
func summarizeWrites(writes []storeWrite, workspace *tenancyv1alpha1.Workspace) (lines []string, values string, bytes map[string]int) {
	plain := strings.NewReplacer(workspace.Spec.Cluster, "<cluster>", workspace.Name, "<workspace>")
	count, text := map[string][]string{}, strings.Builder{}
	bytes = map[string]int{}
	for _, write := range writes {
		if !write.isOf(workspace) {
			continue
		}
		key := write.shard + ": " + hashes.ReplaceAllString(identities.ReplaceAllString(plain.Replace(write.Key), "/<identity>/"), ".kcp.io-<hash>")
		what := "put"
		bytes[key] = len(write.Key) + len(write.Value)
		if write.Value == nil {
			what = "delete"
			delete(bytes, key)
		}
		count[key] = append(count[key], what)
		if len(write.Value) > 0 && write.Value[0] == '{' {
			fmt.Fprintf(&text, "%s: %s\n", key, write.Value)
		}
	}
	for key, done := range count {
		lines = append(lines, key+": "+strings.Join(done, " "))
	}
	slices.Sort(lines)
	return lines, text.String(), bytes
}

// summarizeTransactions returns the transactions of one workspace that have changed several keys, one line each, and all in the order of
// each shard.
func summarizeTransactions(writes []storeWrite, workspace *tenancyv1alpha1.Workspace) (together, ordered []string) {
	type transaction struct {
		shard    string
		revision int64
	}
	keys := map[transaction][]string{}
	for _, write := range writes {
		if !write.isOf(workspace) {
			continue
		}
		prefix, name, inside := strings.Cut(write.Key, "/"+workspace.Spec.Cluster+"/")
		key := path.Base(strings.TrimSuffix(prefix, "/customresources")) + "/" + hashes.ReplaceAllString(name, ".kcp.io")
		if !inside {
			key = write.Key
		}
		of := transaction{write.shard, write.Revision}
		keys[of] = append(keys[of], key)
	}
	all := slices.SortedFunc(maps.Keys(keys), func(a, b transaction) int {
		if by := strings.Compare(a.shard, b.shard); by != 0 {
			return by
		}
		return int(a.revision - b.revision)
	})
	for _, of := range all {
		slices.Sort(keys[of])
		line := of.shard + ": " + strings.Join(keys[of], " ")
		ordered = append(ordered, line)
		if len(keys[of]) > 1 {
			together = append(together, line)
		}
	}
	slices.Sort(together)
	return together, ordered
}

func sum(bytes map[string]int) (total int) {
	for _, size := range bytes {
		total += size
	}
	return total
}

// sortedBySize returns one line per key, the largest first.
func sortedBySize(bytes map[string]int) string {
	lines := make([]string, 0, len(bytes))
	for key, size := range bytes {
		lines = append(lines, fmt.Sprintf("%8d %s", size, key))
	}
	slices.Sort(lines)
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}
