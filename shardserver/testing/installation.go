package testing

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/options"
)

// StartShard starts another shard, as Start does, which joins the root shard and uses its embedded cache server.
func StartShard(t testing.TB, root *Shard, name string, configure ...func(*options.Options)) *Shard {
	t.Helper()
	return StartShardIn(t, t.TempDir(), root, name, configure...)
}

// StartShardIn is StartShard with the root directory of an earlier run.
func StartShardIn(t testing.TB, directory string, root *Shard, name string, configure ...func(*options.Options)) *Shard {
	t.Helper()
	return StartIn(t, directory, append([]func(*options.Options){root.Peer(t, name)}, configure...)...)
}

// Peer returns a function that configures another shard of this root shard's installation.
func (s *Shard) Peer(t testing.TB, name string) func(*options.Options) {
	t.Helper()
	kubeconfig := s.PeerKubeconfig(t)
	return func(o *options.Options) {
		o.Shard.Name = name
		o.Shard.RootKubeconfig, o.Shard.CacheKubeconfig = kubeconfig, kubeconfig
	}
}

// WaitShards waits until the root shard has observed that shards are ready. Workspaces are scheduled to ready shards
// only.
func (s *Shard) WaitShards(t testing.TB, names ...string) {
	t.Helper()
	masters := s.Client(t, s.Masters(t))
	for _, name := range names {
		Eventually(t, "shard "+name+" is ready", func(ctx context.Context) error {
			shard := &corev1alpha1.Shard{}
			if err := masters.Get(In(ctx, "root"), client.ObjectKey{Name: name}, shard); err != nil {
				return err
			}
			if !conditionsv1alpha1.IsTrue(shard, conditionsv1alpha1.Ready) {
				return fmt.Errorf("conditions %+v", shard.Status.Conditions)
			}
			return nil
		})
	}
}

// PeerKubeconfig returns the path of a kubeconfig for the base URL of the shard, as system:masters, with which another
// shard joins it. It must be called again after each start, because the port changes.
func (s *Shard) PeerKubeconfig(t testing.TB) string {
	t.Helper()
	kubeconfig, err := clientcmd.LoadFromFile(filepath.Join(s.Directory, "admin.kubeconfig"))
	if err != nil {
		t.Fatalf("reading the admin kubeconfig: %v", err)
	}
	kubeconfig.CurrentContext = "shard-base"
	file := filepath.Join(s.Directory, "peer.kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	return file
}
