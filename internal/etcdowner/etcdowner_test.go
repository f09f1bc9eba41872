package etcdowner_test

import (
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"

	"github.com/atoll-dev/atoll/internal/etcdowner"
	"github.com/atoll-dev/atoll/internal/etcdtest"
)

func TestClaim(t *testing.T) {
	ignored := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignored) })
	server := etcdtest.Start(t)
	etcd := etcdtest.NewClient(t, server)
	for _, key := range []string{"/old/core/secrets/root/default/a", "/older"} {
		if _, err := etcd.Put(t.Context(), key, "x"); err != nil {
			t.Fatal(err)
		}
	}

	for _, tc := range []struct {
		name, prefix, owner, previous string
		refusedBy                     string // "" if the claim succeeds
	}{
		{"an empty prefix is claimed", "/registry", "alpha", "", ""},
		{"a restart and another replica find their own claim", "/registry", "alpha", "", ""},
		{"another shard is refused", "/registry", "beta", "", "alpha"},
		{"a prefix written without the slash is the same", "registry/", "beta", "", "alpha"},
		{"another prefix is another one's", "/registry-beta", "beta", "", ""},
		{"a prefix below it is another one's", "/registry/beta", "beta", "", ""},
		{"data of a version that did not claim is claimed", "/old", "alpha", "", ""},
		{"a takeover from another owner than the one found is refused", "/registry", "beta", "gamma", "alpha"},
		{"a takeover names the owner", "/registry", "beta", "alpha", ""},
		{"the flag of a takeover may stay", "/registry", "beta", "alpha", ""},
		{"the previous owner is refused then", "/registry", "alpha", "", "beta"},
	} {
		err := etcdowner.Claim(t.Context(), etcd, tc.prefix, etcdowner.Options{Owner: tc.owner, Previous: tc.previous})
		var owned *etcdowner.OwnedError
		switch {
		case tc.refusedBy == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.refusedBy != "" && (!errors.As(err, &owned) || owned.Owner != tc.refusedBy):
			t.Errorf("%s: got %v, want it refused by %s", tc.name, err, tc.refusedBy)
		}
	}

	// etcd refuses a transaction that may write while it has no space; servers must be able to restart all the same.
	maintenance := pb.NewMaintenanceClient(etcd.ActiveConnection())
	if _, err := maintenance.Alarm(t.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}); err != nil {
		t.Fatal(err)
	}
	if err := etcdowner.Claim(t.Context(), etcd, "/registry", etcdowner.Options{Owner: "beta"}); err != nil {
		t.Errorf("a restart while etcd has no space: %v", err)
	}
	if err := etcdowner.Claim(t.Context(), etcd, "/new", etcdowner.Options{Owner: "beta"}); err == nil {
		t.Error("claimed without space")
	}
}
