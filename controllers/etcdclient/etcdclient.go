// Package etcdclient observes and changes the members of an etcd that the operator runs, over etcd's own API. Package etcd decides what
// to change.
package etcdclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/internal/etcdmember"
)

const (
	// memberTimeout bounds the requests to one member, clusterTimeout a request that needs a quorum.
	memberTimeout  = 3 * time.Second
	clusterTimeout = 5 * time.Second
)

// Client is a client of the etcds that the operator runs.
type Client struct{}

// Credentials reads the credentials of a client from the data of a Secret.
func (Client) Credentials(data map[string][]byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("reading the client certificate: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(data[corev1.ServiceAccountRootCAKey]) {
		return nil, fmt.Errorf("no CA certificate under the key %s", corev1.ServiceAccountRootCAKey)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, RootCAs: authorities}, nil
}

// DeleteKey deletes a key. One that does not exist is no error.
func (Client) DeleteKey(ctx context.Context, endpoints []string, credentials *tls.Config, key string) error {
	return request(ctx, endpoints, credentials, clusterTimeout, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Delete(ctx, key)
		return err
	})
}

// Revision returns the revision of the last write, which a quorum confirms.
func (Client) Revision(ctx context.Context, endpoints []string, credentials *tls.Config) (revision int64, err error) {
	err = request(ctx, endpoints, credentials, clusterTimeout, func(ctx context.Context, client *clientv3.Client) error {
		response, err := client.Get(ctx, "revision", clientv3.WithCountOnly())
		if err == nil {
			revision = response.Header.Revision
		}
		return err
	})
	return revision, err
}

// Observe adds the responses of the members to the facts. Members that do not respond are a fact, not an error.
func (Client) Observe(ctx context.Context, endpoints []etcd.Endpoint, credentials *tls.Config, facts *etcd.Facts) {
	facts.Members = make([]etcd.MemberFacts, len(endpoints))
	var observing sync.WaitGroup
	for i, endpoint := range endpoints {
		observing.Go(func() { facts.Members[i] = observeMember(ctx, endpoint, credentials) })
	}
	observing.Wait()
	err := request(ctx, serving(endpoints, facts.Members), credentials, clusterTimeout, func(ctx context.Context, client *clientv3.Client) error {
		list, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		facts.ClusterID = formatID(list.Header.ClusterId)
		for _, member := range list.Members {
			facts.Listed = append(facts.Listed, etcd.Listed{
				ID: member.ID, Learner: member.IsLearner, Started: len(member.ClientURLs) > 0,
				Index: slices.IndexFunc(endpoints, func(e etcd.Endpoint) bool { return slices.Contains(member.PeerURLs, e.PeerURL) }),
			})
		}
		return nil
	})
	if err != nil { // without a quorum
		facts.ClusterID, facts.Listed = "", nil
	}
}

// formatID formats an ID as etcdctl does.
func formatID(id uint64) string { return fmt.Sprintf("%x", id) }

func observeMember(ctx context.Context, endpoint etcd.Endpoint, credentials *tls.Config) (facts etcd.MemberFacts) {
	err := request(ctx, []string{endpoint.ClientURL}, credentials, memberTimeout, func(ctx context.Context, client *clientv3.Client) error {
		status, err := client.Status(ctx, endpoint.ClientURL)
		if err != nil {
			return err
		}
		facts = etcd.MemberFacts{
			Serving: status.Leader != 0, ID: status.Header.MemberId, Leader: status.Leader == status.Header.MemberId,
			// The status lists alarms without a write to the log, unlike a request for alarms.
			NoSpace: slices.ContainsFunc(status.Errors, func(text string) bool { return strings.Contains(text, etcdserverpb.AlarmType_NOSPACE.String()) }),
			Size:    status.DbSize, InUse: status.DbSizeInUse, Quota: status.DbSizeQuota,
		}
		return nil
	})
	if err == nil {
		return facts
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	facts.Empty, _ = etcdmember.IsVolumeEmpty(ctx, endpoint.MetricsURL) // a member that does not respond to this either is down
	return facts
}

// serving are the client URLs of the members that serve.
func serving(endpoints []etcd.Endpoint, members []etcd.MemberFacts) []string {
	var out []string
	for i, member := range members {
		if member.Serving {
			out = append(out, endpoints[i].ClientURL)
		}
	}
	return out
}

// Repair executes the action of a decision about a member. facts are the basis of the decision.
func (Client) Repair(ctx context.Context, endpoints []etcd.Endpoint, credentials *tls.Config, facts etcd.Facts, decision etcd.Decision) error {
	return request(ctx, serving(endpoints, facts.Members), credentials, clusterTimeout, func(ctx context.Context, client *clientv3.Client) error {
		var err error
		switch decision.Action {
		case etcd.Remove:
			_, err = client.MemberRemove(ctx, decision.ID)
		case etcd.Add:
			_, err = client.MemberAddAsLearner(ctx, []string{endpoints[decision.Index].PeerURL})
		case etcd.Promote:
			_, err = client.MemberPromote(ctx, decision.ID)
		}
		return err
	})
}

// request calls a function with a client of some members.
func request(ctx context.Context, urls []string, credentials *tls.Config, timeout time.Duration, do func(context.Context, *clientv3.Client) error) error {
	if len(urls) == 0 {
		return errors.New("no member serves")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: urls, TLS: credentials, Context: ctx, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	return do(ctx, client)
}
