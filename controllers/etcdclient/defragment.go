package etcdclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/atoll-dev/atoll/controllers/etcd"
)

// defragmentTimeout bounds the defragmentation of one member, which copies its data.
const defragmentTimeout = 5 * time.Minute

// Defragment compacts the history, defragments one member after the other, the leader last, and disarms the alarm about space if the
// database then has space. A member does not respond to requests while it is being defragmented.
func (c Client) Defragment(ctx context.Context, endpoints []etcd.Endpoint, credentials *tls.Config, facts etcd.Facts) error {
	urls := serving(endpoints, facts.Members)
	current, err := c.Revision(ctx, urls, credentials)
	if err == nil {
		err = request(ctx, urls, credentials, defragmentTimeout, func(ctx context.Context, client *clientv3.Client) error {
			_, err := client.Compact(ctx, current, clientv3.WithCompactPhysical())
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("compacting: %w", err)
	}
	order := make([]int, len(endpoints))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return rank(facts.Members[a]) - rank(facts.Members[b]) })
	full := false
	for _, i := range order {
		url := endpoints[i].ClientURL
		err := request(ctx, []string{url}, credentials, defragmentTimeout, func(ctx context.Context, client *clientv3.Client) error {
			if _, err := client.Defragment(ctx, url); err != nil {
				return err
			}
			status, err := client.Status(ctx, url)
			if err == nil {
				full = full || status.DbSizeQuota > 0 && status.DbSize >= status.DbSizeQuota
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("defragmenting %s: %w", endpoints[i].Name, err)
		}
	}
	if full {
		return errors.New("the data itself exceeds the quota: delete objects")
	}
	return request(ctx, urls, credentials, clusterTimeout, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
		return err
	})
}

// rank is the position of members in the order of defragmentation.
func rank(member etcd.MemberFacts) int {
	if member.Leader {
		return 1
	}
	return 0
}
