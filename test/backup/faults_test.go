package backup

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
	"github.com/atoll-dev/atoll/internal/backup/objectstore"
	"github.com/atoll-dev/atoll/internal/etcdtest"
)

// TestDamage damages objects of a backup: each is refused with its name and the place of the damage, and nothing is restored.
func TestDamage(t *testing.T) {
	s := startS3(t)
	i := newInstallation(t, s, etcdtest.Start(t))
	i.fill(t, 3)
	otherID := i.mustCreate(t).BackupID
	digest := i.mustCreate(t).ManifestDigest
	if _, err := i.etcdClient.Put(t.Context(), "/registry/later", ""); err != nil {
		t.Fatal(err)
	}
	object := i.manifest(t).Shards[0].Snapshot
	id := i.id
	key := manifest.Key(id, object.Name)
	name := "s3://" + bucket + "/kcp/" + key

	flip := func(at int64) func([]byte) []byte {
		return func(content []byte) []byte {
			content[at] ^= 1
			return content
		}
	}
	for title, test := range map[string]struct {
		damage func([]byte) []byte
		want   string
		// at is a byte that the places in the error must enclose.
		at int64
	}{
		"the first byte":          {flip(0), name + ": damaged in its header", 0},
		"a recipient":             {flip(30), name + ": no identity opens its header, bytes 0 to", 0},
		"the first part":          {flip(1000), name + ": damaged between bytes", 1000},
		"the middle":              {flip(object.Size / 2), name + ": damaged between bytes", object.Size / 2},
		"the last byte":           {flip(object.Size - 1), name + ": damaged", object.Size - 1},
		"truncated by a byte":     {func(content []byte) []byte { return content[:len(content)-1] }, fmt.Sprintf("%s is damaged: it has %d bytes, want %d", name, object.Size-1, object.Size), 0},
		"truncated by half":       {func(content []byte) []byte { return content[:len(content)/2] }, fmt.Sprintf("%s is damaged: it has %d bytes, want %d", name, object.Size/2, object.Size), 0},
		"empty":                   {func([]byte) []byte { return nil }, name + " is damaged: it has 0 bytes", 0},
		"longer":                  {func(content []byte) []byte { return append(content, 0) }, name + " is damaged: it has", 0},
		"overwritten with zeroes": {func(content []byte) []byte { return make([]byte, len(content)) }, name + ": damaged in its header", 0},
	} {
		t.Run(title, func(t *testing.T) {
			i.damage(t, key, test.damage)
			output, err := i.read(t, "verify")
			expectError(t, output, err, test.want)
			if places := regexp.MustCompile(`between bytes (\d+) and (\d+)`).FindStringSubmatch(output); test.at > 0 {
				if len(places) != 3 {
					t.Fatalf("no place: %s", output)
				}
				from, _ := strconv.ParseInt(places[1], 10, 64)
				to, _ := strconv.ParseInt(places[2], 10, 64)
				if test.at < from || test.at >= to || to-from > 1<<17 {
					t.Errorf("the damage is at byte %d, the error says from %d to %d", test.at, from, to)
				}
			}
			i.expectNotRestored(t, test.want)
		})
	}
	t.Run("an object of another backup", func(t *testing.T) {
		other, err := os.ReadFile(s.file(manifest.Key(otherID, object.Name)))
		if err != nil {
			t.Fatal(err)
		}
		i.damage(t, key, func([]byte) []byte { return other })
		i.expectNotRestored(t, "damaged")
	})
	t.Run("a missing object", func(t *testing.T) {
		if err := os.Rename(s.file(key), s.file(key)+".away"); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.Rename(s.file(key)+".away", s.file(key)); err != nil {
				t.Error(err)
			}
		}()
		i.expectNotRestored(t, "there is no such object")
	})
	t.Run("an inventory of more", func(t *testing.T) {
		other := i.manifest(t)
		defer func() { i.id = id }()
		if _, err := i.etcdClient.Put(t.Context(), "/registry/core.kcp.io/logicalclusters/customresources/three/cluster", "{}"); err != nil {
			t.Fatal(err)
		}
		i.mustCreate(t)
		// Whoever writes to the bucket can replace a snapshot and its entry; the digest of the manifest, or the inventory, tells.
		replaced := i.manifest(t)
		replaced.Shards[0].Snapshot = other.Shards[0].Snapshot
		replaced.Shards[0].RevisionFrom, replaced.Shards[0].RevisionTo = other.Shards[0].RevisionFrom, other.Shards[0].RevisionTo
		content, err := replaced.Encode()
		if err != nil {
			t.Fatal(err)
		}
		snapshot, err := os.ReadFile(s.file(key))
		if err != nil {
			t.Fatal(err)
		}
		i.damage(t, manifest.Key(i.id, manifest.Name), func([]byte) []byte { return content })
		i.damage(t, manifest.Key(i.id, object.Name), func([]byte) []byte { return snapshot })
		i.expectNotRestored(t, "1 logical clusters are missing (three), 0 are unexpected ()")
	})
	t.Run("another manifest", func(t *testing.T) {
		i.damage(t, manifest.Key(id, manifest.Name), func(content []byte) []byte { return append(content, '\n') })
		output, err := i.read(t, "verify", "--manifest-digest", digest)
		expectError(t, output, err, "it is not the backup that was made")
	})
	t.Run("a later format", func(t *testing.T) {
		i.damage(t, manifest.Key(id, manifest.Name), func(content []byte) []byte {
			return bytes.Replace(content, []byte(`"formatVersion": 1`), []byte(`"formatVersion": 2`), 1)
		})
		output, err := i.read(t, "verify")
		expectError(t, output, err, "has format version 2, this program reads 1")
		output, err = i.run(t, "list")
		expectError(t, output, err, "has format version 2, this program reads 1")
		if !strings.Contains(output, otherID) {
			t.Errorf("the list lacks the other backup:\n%s", output)
		}
	})
	t.Run("another identity", func(t *testing.T) {
		stranger := newInstallation(t, s, etcdtest.Start(t))
		stranger.id = id
		output, err := stranger.read(t, "verify")
		expectError(t, output, err, "no identity opens its header")
	})
}

// damage changes the file of an object until the end of the test.
func (i *installation) damage(t *testing.T, key string, change func([]byte) []byte) {
	t.Helper()
	file := i.s3.file(key)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, change(bytes.Clone(content)), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(file, content, 0o644) })
}

func (i *installation) expectNotRestored(t *testing.T, want string) {
	t.Helper()
	parent := t.TempDir()
	output, err := i.read(t, "restore", "--shard", rootShard, "--data-dir", filepath.Join(parent, "restored"))
	expectError(t, output, err, want)
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("the restore left %v, %v", left, err)
	}
}

// TestRefusals makes backups that the store or the network refuses: each says what to do, and none leaves a backup behind.
func TestRefusals(t *testing.T) {
	s := startS3(t)
	etcd := etcdtest.Start(t)
	newInstallation(t, s, etcd).fill(t, 12)
	untrusted := httptest.NewTLSServer(nil) // only its certificate matters
	defer untrusted.Close()
	full := startS3(t, "--space", "9000000")
	for title, test := range map[string]struct {
		change func(*testing.T, *installation)
		want   string
	}{
		"a wrong secret key":             {func(t *testing.T, i *installation) { replace(t, i.config.Store.SecretAccessKeyFile, "wrong") }, "the store rejects the credentials (SignatureDoesNotMatch): correct the Secret of s3Credentials"},
		"an unknown access key":          {func(t *testing.T, i *installation) { replace(t, i.config.Store.AccessKeyIDFile, "unknown") }, "the store rejects the credentials ("},
		"no bucket":                      {func(_ *testing.T, i *installation) { i.config.Store.Bucket = "absent" }, "bucket absent does not exist: create it"},
		"no server":                      {func(_ *testing.T, i *installation) { i.config.Store.EndpointURL = "http://127.0.0.1:1" }, "127.0.0.1:1 does not answer"},
		"a certificate of an unknown CA": {func(_ *testing.T, i *installation) { i.config.Store.EndpointURL = untrusted.URL }, "is not accepted"},
		"a server without TLS":           {func(_ *testing.T, i *installation) { i.config.Store.EndpointURL = "https://" + s.address }, "does not speak TLS"},
		"no recipients":                  {func(_ *testing.T, i *installation) { i.config.Store.Recipients = nil }, "no recipients"},
		"a key that is private": {func(t *testing.T, i *installation) {
			key, err := os.ReadFile(i.identity)
			if err != nil {
				t.Fatal(err)
			}
			i.config.Store.Recipients = []string{string(key)}
		}, "recipient 0 is no public key of age"},
		"a full bucket": {func(_ *testing.T, i *installation) {
			i.s3, i.config.Store.EndpointURL = full, "http://"+full.address
		}, "is full (QuotaExceeded)"},
		"an upload that is interrupted": {func(t *testing.T, i *installation) {
			i.config.Store.EndpointURL = "http://" + newCounter(t, s.address, 9_000_000).address
		}, "does not answer"},
		"an etcd that is away":         {func(_ *testing.T, i *installation) { i.config.Shards[0].Endpoints = []string{"https://127.0.0.1:1"} }, "no member of the etcd of shard root sends a snapshot"},
		"a Secret that is not mounted": {func(_ *testing.T, i *installation) { i.config.Secrets[0].Directory = "/nonexistent" }, "reading Secret root-ca"},
	} {
		t.Run(title, func(t *testing.T) {
			i := newInstallation(t, s, etcd)
			i.config.ID = interruptedID
			test.change(t, i)
			result, err := i.create(t)
			expectError(t, result.Error, err, test.want)
			for _, name := range []string{manifest.Name, manifest.SnapshotName(rootShard)} {
				if left, err := filepath.Glob(i.s3.file(manifest.Key(interruptedID+"-*", name))); err != nil || len(left) > 0 {
					t.Errorf("there is %v, %v", left, err)
				}
			}
		})
	}
	t.Run("attempts do not share a folder", func(t *testing.T) {
		i := newInstallation(t, s, etcd)
		i.config.ID = interruptedID
		first := i.mustCreate(t)
		second := i.mustCreate(t)
		for _, made := range []config.Result{first, second} {
			i.id = made.BackupID
			if output, err := i.read(t, "verify", "--manifest-digest", made.ManifestDigest); err != nil {
				t.Errorf("%v: %s", err, output)
			}
		}
	})
}

func replace(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTLS makes a backup over TLS with a CA of its own.
func TestTLS(t *testing.T) {
	directory := t.TempDir()
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS() // makes a certificate for 127.0.0.1
	pair := certificate.TLS.Certificates[0]
	certificate.Close()
	cert, key := filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key")
	replace(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})))
	replace(t, key, privateKey(t, pair))
	s := startS3(t, "--tls-cert-file", cert, "--tls-private-key-file", key)
	i := newInstallation(t, s, etcdtest.Start(t))
	i.fill(t, 1)
	i.config.Store.EndpointURL, i.config.Store.EndpointCAFile = "https://"+s.address, cert
	i.mustCreate(t)
	if output, err := i.read(t, "verify"); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}

func privateKey(t *testing.T, pair tls.Certificate) string {
	t.Helper()
	encoded, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
}

// TestUploadsHoldOnePart counts the bytes that an upload has read and not yet sent: the memory of a backup does not depend on the size of
// the database.
func TestUploadsHoldOnePart(t *testing.T) {
	s := startS3(t)
	i := newInstallation(t, s, etcdtest.Start(t))
	sent := newCounter(t, s.address, 0)
	i.config.Store.EndpointURL = "http://" + sent.address
	store, err := objectstore.Open(i.config.Store)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	source := &source{left: 5*objectstore.PartSize + 1, sent: sent}
	if size, err := store.Put(t.Context(), "counted", source); err != nil || size != 5*objectstore.PartSize+1 {
		t.Fatalf("stored %d bytes: %v", size, err)
	}
	if source.most > objectstore.PartSize {
		t.Errorf("an upload held %d bytes, want at most a part of %d", source.most, objectstore.PartSize)
	}
}

// source is a reader of zeroes that compares what was read with what was sent.
type source struct {
	left, read, most int64
	sent             *counter
}

func (s *source) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), s.left)
	clear(p[:n])
	s.left -= n
	s.read += n
	s.most = max(s.most, s.read-s.sent.bytes.Load())
	return int(n), nil
}

// counter forwards connections, counts what clients send, and breaks all connections after a limit, if there is one.
type counter struct {
	address, target string
	limit           int64
	bytes           atomic.Int64
	connections     atomic.Int64
	running         sync.WaitGroup
}

func newCounter(t *testing.T, target string, limit int64) *counter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{address: listener.Addr().String(), target: target, limit: limit}
	c.running.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			c.running.Go(func() { c.forward(in) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		c.running.Wait()
	})
	return c
}

func (c *counter) forward(in net.Conn) {
	c.connections.Add(1)
	defer in.Close()
	out, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer out.Close()
	c.running.Go(func() {
		_, _ = io.Copy(in, out)
		in.Close()
	})
	_, _ = io.Copy(out, io.TeeReader(in, c))
}

// Write implements io.Writer. Its error breaks the connection.
func (c *counter) Write(p []byte) (int, error) {
	if n := c.bytes.Add(int64(len(p))); c.limit > 0 && n > c.limit {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}
