package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/programs"
	"github.com/atoll-dev/atoll/test/sharded"
)

// etcdMember is one of the members of a shard's etcd.
type etcdMember struct {
	*programs.Process
	name string
	args []string
}

// startEtcdCluster runs an etcd of three members in a directory of the test, and returns their client URLs.
func startEtcdCluster(t *testing.T) ([]*etcdMember, string) {
	t.Helper()
	if err := programs.Build(t.Context(), "../..", binaries, "./cmd/etcd"); err != nil {
		t.Fatal(err)
	}
	var members []*etcdMember
	var peers, clients []string
	for n := range 3 {
		m := &etcdMember{name: fmt.Sprint("member-", n)}
		client, peer := "http://"+programs.FreeAddress(t), "http://"+programs.FreeAddress(t)
		m.args = []string{"--name=" + m.name, "--data-dir=" + m.name, "--unsafe-no-fsync", "--log-level=error",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer}
		members, clients, peers = append(members, m), append(clients, client), append(peers, m.name+"="+peer)
	}
	directory := t.TempDir()
	for _, m := range members {
		m.args = append(m.args, "--initial-cluster="+strings.Join(peers, ","))
		m.run(t, directory)
	}
	for _, client := range clients { // a busy machine may take longer than a shard waits for its etcd
		shardtesting.Eventually(t, "the member at "+client+" is healthy", func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, client+"/health", nil)
			if err != nil {
				return err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return errors.New(response.Status)
			}
			return nil
		})
	}
	return members, strings.Join(clients, ",")
}

func (m *etcdMember) run(t *testing.T, directory string) {
	m.Process = programs.StartAs(t, m.name, directory, filepath.Join(binaries, "etcd"), m.args...)
}

// TestEtcdMemberKilled checks that the shard works with two of three members. A request in flight at that moment may
// fail; acknowledged writes persist, and other shards are unaffected.
func TestEtcdMemberKilled(t *testing.T) {
	members, urls := startEtcdCluster(t)
	s := newEnv(t, sharded.Options{Flags: map[string][]string{alpha: {"--etcd-servers=" + urls}}})
	for _, m := range members {
		before := s.countFailures()
		m.Signal(t, syscall.SIGKILL)
		m.Exit(t)
		s.waitForRecovery(alpha)
		s.expectServing(before, root, beta)
		m.run(t, m.Directory())
		s.waitForRecovery(alpha)
	}
	s.finish()
}
