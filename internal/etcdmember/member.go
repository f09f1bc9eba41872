// Package etcdmember starts a member of an etcd that the operator runs: an empty volume becomes a new member only if the cluster was
// never bootstrapped, or has added this member. The operator records the bootstrap and replaces members; this package runs inside the
// members.
package etcdmember

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// RecordEnv is the environment variable with the directory of the record. Without it etcd starts with its arguments: a
// server without this package ignores the variable.
const RecordEnv = "ATOLL_ETCD_RECORD"

const (
	// listTimeout bounds a request to the other members, retryInterval is the time between two requests.
	listTimeout   = 3 * time.Second
	retryInterval = time.Second
)

// Member is one member before its start.
type Member struct {
	// Name, DataDirectory, PeerURL and ClientURL of this member.
	Name, DataDirectory, PeerURL, ClientURL string
	// MetricsURL is the URL at which health checks are answered until etcd starts.
	MetricsURL string
	// RecordDirectory holds the record.
	RecordDirectory string
	// TLS are the credentials of a client of the other members; nil if they are served without TLS.
	TLS *tls.Config
	// Log prints what the member waits for.
	Log func(reason string)
}

// Wait returns how etcd starts. It waits as long as an empty volume must not become a member.
func (m Member) Wait(ctx context.Context) (Start, error) {
	if wal.Exist(filepath.Join(m.DataDirectory, "member", "wal")) {
		return Start{}, nil // the volume contains the identity and the members
	}
	var waiting *waitingServer
	defer func() {
		if waiting != nil {
			waiting.stop()
		}
	}()
	last := ""
	for {
		record, err := readRecord(m.RecordDirectory)
		if err != nil {
			return Start{}, err
		}
		start, reason := decideStart(record, m.Name, m.PeerURL, m.listMembers(ctx, record))
		if reason == "" {
			return start, ctx.Err()
		}
		if reason != last {
			last = reason
			m.Log(reason)
		}
		if waiting == nil {
			if waiting, err = startWaitingServer(m.MetricsURL, reason); err != nil {
				return Start{}, err
			}
		}
		waiting.setReason(reason)
		select {
		case <-ctx.Done():
			return Start{}, ctx.Err()
		case <-time.After(retryInterval):
		}
	}
}

// listMembers returns the member list of a quorum, or nil if no quorum responds.
func (m Member) listMembers(ctx context.Context, record Record) []*etcdserverpb.Member {
	others := slices.DeleteFunc(slices.Clone(record.Endpoints), func(endpoint string) bool { return endpoint == m.ClientURL })
	if len(others) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: others, TLS: m.TLS, Context: ctx, Logger: zap.NewNop()})
	if err != nil {
		return nil
	}
	defer etcd.Close()
	response, err := etcd.MemberList(ctx)
	if err != nil {
		return nil
	}
	return response.Members
}

// Arguments converts the arguments that the operator renders to those with which etcd starts. It waits as long as an empty volume must
// not become a member.
func Arguments(ctx context.Context, args []string) ([]string, error) {
	directory := os.Getenv(RecordEnv)
	if directory == "" {
		return args, nil
	}
	member := Member{
		Name: flagValue(args, "name"), DataDirectory: flagValue(args, "data-dir"), PeerURL: flagValue(args, "initial-advertise-peer-urls"), ClientURL: flagValue(args, "advertise-client-urls"),
		MetricsURL: flagValue(args, "listen-metrics-urls"), RecordDirectory: directory,
		Log: func(reason string) { fmt.Fprintln(os.Stderr, "etcd:", reason) },
	}
	for flag, value := range map[string]string{"name": member.Name, "data-dir": member.DataDirectory, "initial-advertise-peer-urls": member.PeerURL, "advertise-client-urls": member.ClientURL, "listen-metrics-urls": member.MetricsURL} {
		if value == "" {
			return nil, errors.New("--" + flag + ": required with " + RecordEnv)
		}
	}
	var err error
	// The certificate for peers is also one of a client.
	info := transport.TLSInfo{CertFile: flagValue(args, "peer-cert-file"), KeyFile: flagValue(args, "peer-key-file"), TrustedCAFile: flagValue(args, "peer-trusted-ca-file")}
	if !info.Empty() {
		if member.TLS, err = info.ClientConfig(); err != nil {
			return nil, fmt.Errorf("reading the certificate for peers: %w", err)
		}
	}
	start, err := member.Wait(ctx)
	if err != nil {
		return nil, err
	}
	return start.apply(args), nil
}

// apply changes the arguments. etcd uses the last value of a flag.
func (s Start) apply(args []string) []string {
	out := slices.Clone(args)
	if s.Existing {
		out = append(out, "--initial-cluster-state=existing", "--initial-cluster="+s.Cluster)
	}
	if s.Token != "" {
		out = append(out, "--initial-cluster-token="+s.Token)
	}
	return out
}

// flagValue returns the value of "--name=value".
func flagValue(args []string, name string) string {
	value := ""
	for _, arg := range args {
		if v, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			value = v
		}
	}
	return value
}
