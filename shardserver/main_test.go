package shardserver_test

import (
	"os"
	"testing"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/fixture"
)

// shared is a shard with the default options, for tests that have workspaces of their own and change nothing else.
var shared struct {
	*fixture.Fixture
	shard *shardtesting.Shard
}

func TestMain(m *testing.M) {
	shared.Fixture = fixture.New("shardserver", func() { shared.shard = shardtesting.Start(shared.Fixture) })
	code := m.Run()
	os.Exit(max(code, shared.Stop()))
}

func sharedShard(t *testing.T) *shardtesting.Shard {
	t.Helper()
	shared.Start(t)
	return shared.shard
}
