package etcdlist

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"go.uber.org/goleak"

	"github.com/atoll-dev/atoll/internal/etcdtest"
)

// keysInTest is more than a page.
const keysInTest = pageSize + 10

// TestRead reads from etcd, and through its gRPC proxy, which serves no streams.
func TestRead(t *testing.T) {
	client := etcdtest.NewClient(t, etcdtest.Start(t))
	proxy, _ := grpcproxy.NewKvProxy(client)
	var want []string
	for batch := range slices.Chunk(slices.Collect(keys()), 100) {
		var ops []clientv3.Op
		for _, key := range batch {
			ops = append(ops, clientv3.OpPut(key, "value"))
			want = append(want, key)
		}
		if _, err := client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	first := put(t, client, "/other", "")
	put(t, client, want[0], "changed")

	for name, kv := range map[string]clientv3.KV{
		"stream": client,
		"pages":  clientv3.NewKVFromKVClient(adapter.KvServerToKvClient(proxy), client),
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			t.Run("the latest", func(t *testing.T) {
				got, values := read(t, kv, 0)
				if !slices.Equal(got, want) || values[0] != "changed" || values[1] != "value" {
					t.Errorf("got %d keys, the first with %q", len(got), values[0])
				}
			})
			t.Run("an earlier revision", func(t *testing.T) {
				if _, values := read(t, kv, first); values[0] != "value" {
					t.Errorf("got %q", values[0])
				}
			})
			t.Run("keys only", func(t *testing.T) {
				if got, values := read(t, kv, 0, clientv3.WithKeysOnly()); len(got) != keysInTest || values[0] != "" {
					t.Errorf("got %d keys, the first with %q", len(got), values[0])
				}
			})
			t.Run("values in small parts", func(t *testing.T) {
				for revision, first := range map[int64]string{0: "changed", first: "value"} {
					var got []string
					at, err := ReadValues(t.Context(), kv, "/list/", revision, 1000, func(part []*mvccpb.KeyValue) error {
						if len(part) > 1000 {
							t.Errorf("got a part of %d keys", len(part))
						}
						for _, kv := range part {
							if want := map[bool]string{true: first, false: "value"}[len(got) == 0]; string(kv.Value) != want {
								t.Errorf("%s: got %q", kv.Key, kv.Value)
							}
							got = append(got, string(kv.Key))
						}
						return nil
					})
					if err != nil || !slices.Equal(got, want) || revision != 0 && at != revision {
						t.Errorf("got %d keys at revision %d, %v", len(got), at, err)
					}
				}
			})
			t.Run("one revision, while keys change", func(t *testing.T) {
				parts, changed := 0, 0
				err := Read(t.Context(), kv, "/list/", 0, func(part []*mvccpb.KeyValue) error {
					if parts++; parts == 1 {
						put(t, client, want[keysInTest-1], "changed")
					}
					for _, kv := range part[max(0, len(part)-1):] {
						if string(kv.Key) == want[keysInTest-1] && string(kv.Value) == "changed" {
							changed++
						}
					}
					return nil
				})
				put(t, client, want[keysInTest-1], "value")
				if err != nil || parts < 2 || changed > 0 {
					t.Errorf("got %d parts, %d with a later change, %v", parts, changed, err)
				}
			})
			t.Run("no keys", func(t *testing.T) {
				if err := Read(t.Context(), kv, "/none/", 0, func(part []*mvccpb.KeyValue) error {
					if len(part) > 0 {
						t.Errorf("got %v", part)
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
			t.Run("the function fails", func(t *testing.T) {
				failed, calls := errors.New("failed"), 0
				err := Read(t.Context(), kv, "/list/", 0, func([]*mvccpb.KeyValue) error { calls++; return failed })
				if !errors.Is(err, failed) || calls != 1 {
					t.Errorf("got %v after %d calls", err, calls)
				}
			})
		})
	}

	t.Run("a revision that is compacted", func(t *testing.T) {
		if _, err := client.Compact(t.Context(), put(t, client, "/other", "")); err != nil {
			t.Fatal(err)
		}
		for name, kv := range map[string]clientv3.KV{"stream": client, "pages": clientv3.NewKVFromKVClient(adapter.KvServerToKvClient(proxy), client)} {
			if err := Read(t.Context(), kv, "/list/", first, func([]*mvccpb.KeyValue) error { return nil }); !errors.Is(err, rpctypes.ErrCompacted) {
				t.Errorf("%s: got %v", name, err)
			}
		}
	})
}

func keys() func(func(string) bool) {
	return func(yield func(string) bool) {
		for i := range keysInTest {
			if !yield(fmt.Sprintf("/list/%06d", i)) {
				return
			}
		}
	}
}

func put(t *testing.T, client *clientv3.Client, key, value string) (revision int64) {
	t.Helper()
	response, err := client.Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return response.Header.Revision
}

func read(t *testing.T, kv clientv3.KV, revision int64, options ...clientv3.OpOption) (keys, values []string) {
	t.Helper()
	if err := Read(t.Context(), kv, "/list/", revision, func(part []*mvccpb.KeyValue) error {
		for _, kv := range part {
			keys, values = append(keys, string(kv.Key)), append(values, string(kv.Value))
		}
		return nil
	}, options...); err != nil {
		t.Fatal(err)
	}
	return keys, values
}
