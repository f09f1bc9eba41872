// Package backup tests backups as the operator makes them and people restore them: the real program, a real S3 server over the network, and
// real etcds.
package backup

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	clientv3 "go.etcd.io/etcd/client/v3"
	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/test/programs"
)

const (
	bucket               = "backups"
	rootShard, beforeCut = "root", "20300102T030405Z-00000001"
	interruptedID        = "20300102T050607Z-00000003"
)

// bin is the directory of the binaries under test.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	directory, err := os.MkdirTemp("", "backup-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	bin = directory
	root := filepath.Join("..", "..")
	if err := programs.Build(context.Background(), root, bin, "./cmd/etcd"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := programs.Build(context.Background(), filepath.Join(root, "test", "s3server"), bin, "."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// s3 is a running S3 server.
type s3 struct {
	address string
	objects string
}

func startS3(t *testing.T, args ...string) *s3 {
	t.Helper()
	started := programs.StartS3(t, filepath.Join(bin, "s3server"), bucket, args...)
	return &s3{started.Address, started.Objects}
}

// file is the file of an object.
func (s *s3) file(key string) string { return filepath.Join(s.objects, bucket, "kcp", key) }

// installation is an etcd with its backup configuration.
type installation struct {
	config     *config.Backup
	id         string // of the last backup
	identity   string // a file
	directory  string
	s3         *s3
	etcdClient *clientv3.Client
}

func newInstallation(t *testing.T, s *s3, etcd *embeddedetcd.Server) *installation {
	t.Helper()
	directory := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, file := range map[string]string{"ca.crt": etcd.CAFile, "tls.crt": etcd.CertFile, "tls.key": etcd.KeyFile} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write("etcd/"+name, string(content))
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(etcd.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	write("secrets/root-ca/tls.crt", string(ca))
	write("secrets/root-ca/..data/tls.crt", "a link of the kubelet")
	return &installation{
		directory: directory, s3: s, identity: write("key.txt", identity.String()+"\n"), etcdClient: etcdtest.NewClient(t, etcd),
		config: &config.Backup{
			ID: beforeCut, Installation: config.Installation{Namespace: "kcp", RootShard: rootShard, KubernetesCluster: "c1"},
			Store: config.Store{
				EndpointURL: "http://" + s.address, Bucket: bucket, Prefix: "kcp", Recipients: []string{identity.Recipient().String()},
				AccessKeyIDFile: write("access", programs.S3AccessKey), SecretAccessKeyFile: write("secret", programs.S3SecretKey+"\n"),
			},
			Shards: []config.Shard{{Name: rootShard, Endpoints: []string{etcd.Endpoint}, Prefix: "/registry", CredentialsDirectory: filepath.Join(directory, "etcd")}},
			Secrets: []config.Secret{{
				Name: "root-ca", Type: "kubernetes.io/tls", Annotations: map[string]string{"cert-manager.io/issuer-name": "root-selfsigned"},
				Directory: filepath.Join(directory, "secrets", "root-ca"),
			}},
		},
	}
}

// fill writes logical clusters, and values that cannot be compressed.
func (i *installation) fill(t *testing.T, megabytes int) {
	t.Helper()
	for _, name := range []string{"one", "two"} {
		if _, err := i.etcdClient.Put(t.Context(), "/registry/core.kcp.io/logicalclusters/customresources/"+name+"/cluster", "{}"); err != nil {
			t.Fatal(err)
		}
	}
	value := make([]byte, 1<<20)
	for n := range megabytes {
		_, _ = rand.Read(value) // never fails
		if _, err := i.etcdClient.Put(t.Context(), fmt.Sprintf("/registry/core/configmaps/one/default/%d", n), string(value)); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a command of the program and returns its output.
func (i *installation) run(t *testing.T, command string, args ...string) (string, error) {
	t.Helper()
	content, err := yaml.Marshal(i.config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(i.directory, "backup.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), filepath.Join(bin, "etcd"), append([]string{"backup", command, "--config", file}, args...)...).CombinedOutput()
	return string(output), err
}

// read runs a command that reads a backup.
func (i *installation) read(t *testing.T, command string, args ...string) (string, error) {
	t.Helper()
	return i.run(t, command, append([]string{"--id", i.id, "--identity-file", i.identity}, args...)...)
}

// create makes a backup and returns the result that the operator reads.
func (i *installation) create(t *testing.T) (config.Result, error) {
	t.Helper()
	file := filepath.Join(i.directory, "termination-log")
	output, err := i.run(t, "create", "--result-file", file)
	content, readErr := os.ReadFile(file)
	if readErr != nil {
		t.Fatalf("%v\n%s", readErr, output)
	}
	result, parseErr := config.ParseResult(string(content))
	if parseErr != nil {
		t.Fatal(parseErr)
	}
	if (err == nil) != (result.Error == "") {
		t.Errorf("the program ends with %v, and the result is %+v", err, result)
	}
	return result, err
}

func (i *installation) mustCreate(t *testing.T) config.Result {
	t.Helper()
	result, err := i.create(t)
	if err != nil {
		t.Fatal(result.Error)
	}
	if i.id = result.BackupID; !strings.HasPrefix(i.id, i.config.ID+"-") || result.DestinationPath != "s3://"+bucket+"/kcp/"+i.id {
		t.Fatalf("the backup is %q in %q", i.id, result.DestinationPath)
	}
	return result
}

// manifest returns the manifest of the backup, as it is stored.
func (i *installation) manifest(t *testing.T) *manifest.Manifest {
	t.Helper()
	content, err := os.ReadFile(i.s3.file(manifest.Key(i.id, manifest.Name)))
	if err != nil {
		t.Fatal(err)
	}
	out := &manifest.Manifest{}
	if err := json.Unmarshal(content, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func expectError(t *testing.T, output string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(output, want) {
		t.Errorf("got %v, want an error with %q:\n%s", err, want, output)
	}
}
