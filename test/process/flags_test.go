package process

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestInvalidFlags checks that invalid flags end the start with exit code 1 and an error that names what to change.
// Package options tests the set of flags, and more errors.
func TestInvalidFlags(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for name, tc := range map[string]struct {
		flags []string
		want  string
	}{
		"an unknown flag":                         {[]string{"--nonsense"}, "unknown flag: --nonsense"},
		"a kube-apiserver flag without effect":    {[]string{"--runtime-config=api/all=true"}, "unknown flag: --runtime-config"},
		"an argument":                             {[]string{"nonsense"}, "nonsense"},
		"a value of the wrong type":               {[]string{"--secure-port=x"}, "--secure-port"},
		"an unknown battery":                      {[]string{"--batteries-included=nonsense"}, "--batteries-included"},
		"an unavailable feature":                  {[]string{"--feature-gates=StorageVersionAPI=true"}, "StorageVersionAPI"},
		"embedded and external etcd":              {[]string{"--etcd-servers=embedded,https://127.0.0.1:1"}, "--etcd-servers"},
		"credentials for an embedded etcd":        {[]string{"--etcd-cafile=" + missing}, "--etcd-servers"},
		"no root directory and no key":            {[]string{"--root-directory=", "--etcd-servers=https://127.0.0.1:1"}, "no serviceaccount key file loaded and no root directory set"},
		"a missing file":                          {[]string{"--client-ca-file=" + missing}, "--client-ca-file"},
		"a certificate without its key":           {[]string{"--tls-cert-file=" + missing}, "--tls-private-key-file"},
		"a root directory that cannot be created": {[]string{"--root-directory=/dev/null/kcp"}, "--root-directory"},
		"a free port with a given port":           {[]string{"--secure-port=6443"}, "--experimental-bind-free-port"},
		"an unknown log format":                   {[]string{"--logging-format=nonsense"}, "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := launchShard(t, newRootDirectory(t), tc.flags...)
			if code := failed.Exit(t); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			if _, message, ok := strings.Cut("\n"+failed.Output(), "\nError: "); !ok || !strings.Contains(message, tc.want) {
				t.Errorf("the output does not contain %q:\n%s", tc.want, failed.Tail())
			}
		})
	}
}

// TestRootDirectoryLock starts a second shard on a root directory that is in use: it must end, not wait or corrupt
// data.
func TestRootDirectoryLock(t *testing.T) {
	t.Parallel()
	root := newRootDirectory(t)
	s := start(t, root)
	second := launchShard(t, root)
	if code := second.Exit(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if !strings.Contains(second.Output(), "another process") {
		t.Errorf("the output does not contain the reason:\n%s", second.Tail())
	}
	s.waitReady(t) // the first still runs
	s.stop(t)
}
