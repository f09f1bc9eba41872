package restoremark_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/internal/reservedkeys"
	"github.com/atoll-dev/atoll/internal/restoremark"
)

func TestMark(t *testing.T) {
	ignored := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignored) })
	etcd := etcdtest.NewClient(t, etcdtest.Start(t))
	const prefix = "/registry"
	read := func() *restoremark.Mark {
		t.Helper()
		mark, err := restoremark.Read(t.Context(), etcd, prefix)
		if err != nil {
			t.Fatal(err)
		}
		return mark
	}
	fresh := read()
	if fresh.Held() {
		t.Error("a shard that was not restored is held")
	}
	fresh.Follow(t.Context(), etcd, prefix, time.Hour) // returns
	if _, err := etcd.Put(t.Context(), reservedkeys.Restored(prefix), "backup"); err != nil {
		t.Fatal(err)
	}
	if fresh.Held() {
		t.Error("a mark appears while the shard runs")
	}
	mark := read()
	if !mark.Held() {
		t.Fatal("a restored shard is not held")
	}
	if mark.IsConfirmed() {
		t.Error("a restored shard knows what has moved without asking")
	}
	for range 2 { // by two replicas
		if err := restoremark.RecordConfirmation(t.Context(), etcd, prefix); err != nil {
			t.Fatal(err)
		}
	}
	if again := read(); !again.Held() || !again.IsConfirmed() {
		t.Error("a shard that starts again asks again, or is not held")
	}
	if _, err := etcd.Put(t.Context(), reservedkeys.Restored(prefix), "backup"); err != nil { // restored again
		t.Fatal(err)
	}
	if read().IsConfirmed() {
		t.Error("what was known before the last restore counts")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	mark.Follow(ctx, etcd, prefix, time.Millisecond)
	if !mark.Held() {
		t.Error("the end of the process releases the shard")
	}
	if _, err := etcd.Delete(t.Context(), reservedkeys.Restored(prefix)); err != nil {
		t.Fatal(err)
	}
	mark.Follow(t.Context(), etcd, prefix, time.Millisecond)
	if mark.Held() {
		t.Error("a released shard is held")
	}
	if err := restoremark.RecordConfirmation(t.Context(), etcd, prefix); err != nil {
		t.Fatal(err)
	}
	if read().Held() {
		t.Error("the confirmation holds a released shard")
	}
}
