package faults

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/programs"
	"github.com/atoll-dev/atoll/test/sharded"
)

const (
	// leadingMessage is the log message of a replica that starts the controllers.
	leadingMessage = "Leading: controllers start"
	// takeoverTimeout is somewhat longer than the duration of a lease, and far less than clocks differ.
	takeoverTimeout = 30 * time.Second
)

// TestReplicaClockSkew sets the clock of one of two replicas of a shard ten minutes ahead. Each measures the age of the
// lease from when it observed its last change: neither takes it from a running leader, nor waits ten minutes after the
// end of one. Controllers of one process handle objects that the other wrote with timestamps in the future.
func TestReplicaClockSkew(t *testing.T) {
	future := shiftedClock(t, ahead)
	_, urls := startEtcd(t, t.TempDir(), memberNames...)
	s := newEnv(t, sharded.Options{Flags: map[string][]string{alpha: {"--etcd-servers=" + urls, "--enable-leader-election"}}})
	other := s.startReplica(alpha, future)
	s.testControllers(other, "led-from-the-present")
	if strings.Contains(other.Output(), leadingMessage) {
		t.Error("the replica with the fast clock leads while the other holds the lease")
	}
	s.step(t, "the leader stops", func(s *env) {
		s.Process(s.T, alpha).Signal(s.T, syscall.SIGTERM)
		s.Process(s.T, alpha).Exit(s.T)
		s.waitForLeadership(other.Process)
		s.restart(alpha)
		s.WaitReady(s.T, alpha)
		s.testControllers(other, "led-from-the-future")
	})
	s.step(t, "the leader with the fast clock is killed", func(s *env) {
		if strings.Contains(s.Process(s.T, alpha).Output(), leadingMessage) {
			s.Error("a replica leads while the one with the fast clock holds the lease")
		}
		other.Signal(s.T, syscall.SIGKILL)
		other.Exit(s.T)
		s.waitForLeadership(s.Process(s.T, alpha))
		s.createWorkspace("led-from-the-present-again", alpha)
	})
	s.waitForRecovery(root, alpha, beta)
	s.finish()
}

// replica is another replica of a shard, which receives no requests from the front proxy.
type replica struct {
	*programs.Process
	admin client.Client
}

// startReplica starts another replica of a shard on a host.
func (e *env) startReplica(shard string, host sharded.Host) *replica {
	e.Helper()
	servers := e.Layout().Servers
	server := servers[slices.IndexFunc(servers, func(server sharded.Server) bool { return server.Name == shard })]
	address := programs.FreeAddress(e.T)
	server.Name, server.URL = shard+"-replica", "https://"+address
	_, port, _ := strings.Cut(address, ":")
	command := slices.Concat(host.Command, []string{filepath.Join(binaries, server.Program)}, server.Args,
		[]string{"--secure-port=" + port, "--root-directory=" + filepath.Join(e.Directory(), server.Name)})
	process := programs.StartAs(e.T, server.Name, e.Directory(), command[0], command[1:]...)
	if err := e.Layout().WaitReady(e.Context(), server); err != nil {
		e.Fatal(err)
	}
	config, err := e.Layout().Client(server.URL, "shard-admin", "system:masters")
	if err != nil {
		e.Fatal(err)
	}
	admin, err := loopback.NewClient(config)
	if err != nil {
		e.Fatal(err)
	}
	return &replica{process, admin}
}

// waitForLeadership waits until the process runs the controllers.
func (e *env) waitForLeadership(process *programs.Process) {
	e.Helper()
	began := time.Now()
	shardtesting.Eventually(e.T, process.Name+" leads", func(context.Context) error {
		if !strings.Contains(process.Output(), leadingMessage) {
			return errors.New("not leading")
		}
		return nil
	})
	if took := time.Since(began); took > takeoverTimeout {
		e.Errorf("%s leads after %s, want at most %s", process.Name, took, takeoverTimeout)
	}
}

// testControllers creates and deletes, through a replica of alpha, objects that controllers process.
func (e *env) testControllers(other *replica, name string) {
	e.Helper()
	replicaEnv := *e
	replicaEnv.admin = other.admin
	began := time.Now()
	parent := e.consumers[alpha]
	replicaEnv.testOwnerDeletion(parent, name)
	for _, shard := range e.Shards() {
		workspace := shardtesting.NewWorkspace(e.T, replicaEnv.admin, parent, name+"-"+shard, shardtesting.OnShard(shard))
		replicaEnv.deleteAndWait(parent, workspace)
	}
	if took := time.Since(began); took > takeoverTimeout {
		e.Errorf("creating and deleting workspaces took %s", took)
	}
}
