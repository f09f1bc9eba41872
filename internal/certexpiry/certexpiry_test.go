package certexpiry

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/atoll-dev/atoll/internal/testpki"
)

// issue returns a certificate, and when it expires in seconds since 1970.
func issue(t *testing.T, a *testpki.Authority, validity time.Duration) (testpki.Pair, int64) {
	t.Helper()
	pair, err := a.IssueFor(validity, "server")
	if err != nil {
		t.Fatal(err)
	}
	expiry, err := source{file: pair.CertFile}.expiry()
	if err != nil {
		t.Fatal(err)
	}
	if differs := time.Until(expiry) - validity; differs.Abs() > time.Minute {
		t.Fatalf("a certificate for %s expires at %s", validity, expiry)
	}
	return pair, expiry.Unix()
}

func TestCollector(t *testing.T) {
	a, err := testpki.New(t.TempDir(), "ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	serving, servingEnd := issue(t, a, 10*time.Minute)
	client, clientEnd := issue(t, a, -time.Minute)
	late, _ := issue(t, a, 30*time.Minute)
	embedded, err := os.ReadFile(client.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	c := New()
	c.AddFile("tls-cert-file", serving.CertFile)
	c.AddFile("etcd-certfile", "")
	c.AddFile("etcd-unreadable", filepath.Join(t.TempDir(), "absent"))
	c.AddFile("a-key", serving.KeyFile)
	c.AddFile("mapping-file", late.CertFile)
	c.AddFile("mapping-file", serving.CertFile)
	c.AddClient("cache-kubeconfig", &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: embedded, CertFile: serving.CertFile}})
	c.AddClient("root-shard-kubeconfig-file", nil)
	c.AddClient("with-a-token", &rest.Config{BearerToken: "x"})
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(c)
	expect := func(mapping, tls int64) {
		t.Helper()
		const name = "atoll_certificate_expiration_timestamp_seconds"
		want := fmt.Sprintf("# HELP %[1]s [ALPHA] Time at which a certificate that this server presents expires, in seconds since 1970, by the flag that names it: the earliest if these are several. Absent for a file that cannot be read.\n# TYPE %[1]s gauge\n"+
			"%[1]s{flag=\"cache-kubeconfig\"} %[2]d\n%[1]s{flag=\"mapping-file\"} %[3]d\n%[1]s{flag=\"tls-cert-file\"} %[4]d\n", name, clientEnd, mapping, tls)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), name); err != nil {
			t.Error(err)
		}
	}
	expect(servingEnd, servingEnd)

	renewed, renewedEnd := issue(t, a, 40*time.Minute)
	if err := os.Rename(renewed.CertFile, serving.CertFile); err != nil {
		t.Fatal(err)
	}
	lateEnd, err := source{file: late.CertFile}.expiry()
	if err != nil {
		t.Fatal(err)
	}
	expect(lateEnd.Unix(), renewedEnd)
}
