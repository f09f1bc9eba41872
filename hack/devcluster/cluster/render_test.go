package cluster

import (
	"crypto/x509"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

var update = flag.Bool("update", false, "write the golden files anew")

func checkGolden(t *testing.T, file string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs (run with -update and review the change):\n%s", file, got)
	}
}

func TestConfigFiles(t *testing.T) {
	layout, err := NewLayout("/state")
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range configFiles {
		content, err := render(name, layout.settings("overlayfs", []string{"192.0.2.53"}))
		if err != nil {
			t.Fatal(err)
		}
		checkGolden(t, filepath.Base(file), content)
	}
}

func TestCorefileWithoutNameservers(t *testing.T) {
	content, err := render("system.yaml.tmpl", Layout{State: "/state"}.settings("overlayfs", nil))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), "forward .") {
		t.Errorf("the Corefile forwards:\n%s", content)
	}
}

func TestListNameservers(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"are the machine's own":                             {map[string]string{"/etc/resolv.conf": "search x\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n"}, []string{"192.0.2.1", "192.0.2.2"}},
		"leave out one on loopback":                         {map[string]string{"/etc/resolv.conf": "nameserver 127.0.0.53\nnameserver 192.0.2.1\n"}, []string{"192.0.2.1"}},
		"are those behind systemd's where only that is set": {map[string]string{"/etc/resolv.conf": "nameserver 127.0.0.53\n", "/run/systemd/resolve/resolv.conf": "nameserver 192.0.2.9\n"}, []string{"192.0.2.9"}},
		"are none where the machine has none":               {nil, nil},
		"are at most three":                                 {map[string]string{"/etc/resolv.conf": "nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n"}, []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := listNameservers(func(path string) ([]byte, error) {
				if content, ok := tc.files[path]; ok {
					return []byte(content), nil
				}
				return nil, errors.New("no such file")
			})
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestNewLayoutRejectsInvalidPaths(t *testing.T) {
	for _, dir := range []string{"/" + strings.Repeat("x", 90), "/with blank"} {
		if _, err := NewLayout(dir); err == nil {
			t.Errorf("%q was accepted", dir)
		}
	}
}

func TestClaimStateDir(t *testing.T) {
	layout := Layout{State: t.TempDir()}
	if err := os.WriteFile(layout.path("thesis.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := layout.claimStateDir(); err == nil || layout.hasMarker() {
		t.Errorf("the folder was taken: %v", err)
	}
	fresh := Layout{State: filepath.Join(t.TempDir(), "new")}
	for range 2 {
		if err := fresh.claimStateDir(); err != nil || !fresh.hasMarker() {
			t.Errorf("a new folder was refused: %v", err)
		}
	}
}

func TestEnsurePKI(t *testing.T) {
	layout := Layout{State: t.TempDir()}
	now := time.Now()
	if err := layout.ensurePKI(now); err != nil {
		t.Fatal(err)
	}
	for _, leaf := range leaves {
		authority, err := pkiutil.TryLoadCertFromDisk(layout.path("pki"), leaf.issuer)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := pkiutil.TryLoadCertFromDisk(layout.path("pki"), leaf.file)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(authority)
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Errorf("%s: %v", leaf.file, err)
		}
		for _, ip := range leaf.ips {
			if err := cert.VerifyHostname(ip); err != nil {
				t.Errorf("%s: %v", leaf.file, err)
			}
		}
	}
	before, err := os.ReadFile(layout.pki("admin.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := layout.ensurePKI(now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(layout.pki("admin.crt")); string(before) != string(after) {
		t.Error("the administrator's certificate was made anew")
	}
	for range 2 { // the second write leaves kubeconfigs unchanged
		if err := os.MkdirAll(layout.config(""), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := layout.writeKubeconfig(layout.Kubeconfig(), "admin"); err != nil {
			t.Fatal(err)
		}
	}
}
