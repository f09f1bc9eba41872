package adminauth

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// newAdmin creates the tokens of one process, and writes them if written is set.
func newAdmin(t *testing.T, directory string, written bool) *Admin {
	t.Helper()
	admin, err := New(Config{KubeconfigPath: filepath.Join(directory, "admin.kubeconfig"), TokenHashPath: filepath.Join(directory, "hash")})
	if err != nil {
		t.Fatal(err)
	}
	if written {
		if err := admin.WriteKubeconfig("example.com:6443", []byte("ca")); err != nil {
			t.Fatal(err)
		}
	}
	return admin
}

func TestWriteKubeconfig(t *testing.T) {
	directory := t.TempDir()
	newAdmin(t, directory, false)
	if files, err := os.ReadDir(directory); err != nil || len(files) > 0 {
		t.Errorf("there is %v, %v", files, err)
	}
	admin := newAdmin(t, directory, true)
	config, err := clientcmd.LoadFromFile(filepath.Join(directory, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if base := config.Clusters["base"]; base.Server != "https://example.com:6443" || string(base.CertificateAuthorityData) != "ca" {
		t.Errorf("got %+v", base)
	}
	if config.AuthInfos[ShardAdmin].Token != admin.shardAdmin {
		t.Error("the file has another token")
	}
}

func TestShardAdminTokenPersists(t *testing.T) {
	directory := t.TempDir()
	first := newAdmin(t, directory, true)
	second := newAdmin(t, directory, true)
	if first.shardAdmin != second.shardAdmin || first.kcpAdmin == second.kcpAdmin {
		t.Error("shard-admin has a new token, or kcp-admin the old one")
	}
	if err := os.Remove(filepath.Join(directory, "hash")); err != nil { // as after a crash before it was written
		t.Fatal(err)
	}
	if third := newAdmin(t, directory, true); third.shardAdmin == first.shardAdmin {
		t.Error("a token without a digest was used")
	}
	if err := os.Remove(filepath.Join(directory, "admin.kubeconfig")); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{KubeconfigPath: filepath.Join(directory, "admin.kubeconfig"), TokenHashPath: filepath.Join(directory, "hash")}); err == nil {
		t.Error("a digest without its token is not an error")
	}
}
