// Package etcdowner prevents two servers from using the same keys of an etcd: each writes the name of its owner below its prefix at the
// first start, and does not serve if it finds another one.
package etcdowner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/reservedkeys"
	"github.com/atoll-dev/atoll/internal/startupserver"
)

const (
	// check is the name of the readiness check that fails while another owner is found.
	check = "etcd-owner"
	// requestTimeout bounds one attempt to claim, retryInterval is the time between two attempts that find another owner.
	requestTimeout = 20 * time.Second
	retryInterval  = 2 * time.Second
)

// Options name the owner of the keys below a prefix. Replicas of one server have the same owner.
type Options struct {
	// Owner is the name of the owner. Previous is the owner from which it takes over; if it is empty, from none.
	Owner, Previous string
}

// AddFlags binds the options to flags. fallback describes the default owner.
func (o *Options) AddFlags(fs *pflag.FlagSet, fallback string) {
	fs.StringVar(&o.Owner, "etcd-owner", o.Owner, "Name of the owner of the keys in etcd below --etcd-prefix, the same for all replicas and different from that of every other server. It is stored at the first start; a server that finds another owner there does not become ready. Default: "+fallback+".")
	fs.StringVar(&o.Previous, "etcd-previous-owner", o.Previous, "Owner from which this server takes over the keys in etcd, as the readiness check of another owner reports it. The server of that owner must not run any more.")
}

// Key returns the key that holds the owner of a prefix.
func Key(prefix string) string { return reservedkeys.Owner(prefix) }

// OwnedError is returned for keys that belong to another owner.
type OwnedError struct{ Key, Owner, Self string }

// Error implements error.
func (e *OwnedError) Error() string {
	return fmt.Sprintf("the keys in etcd belong to %q (key %s), and this is %q: set another --etcd-servers or --etcd-prefix; or, if that server does not run any more and this one takes over its data, set --etcd-previous-owner=%s",
		e.Owner, e.Key, e.Self, e.Owner)
}

// Claim sets the owner of the prefix, if the prefix has none or the previous one. Existing keys do not prevent that, because they are
// from versions that did not claim. It returns an *OwnedError if the prefix has another owner.
func Claim(ctx context.Context, etcd *clientv3.Client, prefix string, options Options) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key := Key(prefix)
	for {
		// Claim reads the owner before it writes: an etcd without space refuses a transaction that may write, and a server must be able
		// to restart with such an etcd.
		found, err := etcd.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("reading the owner of the keys below %s: %w", prefix, err)
		}
		revision := int64(0) // of a key that does not exist
		if len(found.Kvs) == 1 {
			owner := string(found.Kvs[0].Value)
			if owner == options.Owner {
				return nil
			}
			if options.Previous == "" || owner != options.Previous {
				return &OwnedError{Key: key, Owner: owner, Self: options.Owner}
			}
			klog.InfoS("Taking over the keys in etcd", "key", key, "from", owner, "owner", options.Owner)
			revision = found.Kvs[0].ModRevision
		}
		written, err := etcd.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, options.Owner)).Commit()
		if err != nil {
			return fmt.Errorf("claiming the keys below %s: %w", prefix, err)
		}
		if written.Succeeded {
			return nil
		}
	}
}

// Acquire claims the keys below all prefixes before any other write to them. While another owner has them, it answers health checks on
// the secure port with the reason, and retries until the context ends.
func Acquire(ctx context.Context, etcd *clientv3.Client, serving *genericapiserver.SecureServingInfo, options Options, prefixes ...string) (err error) {
	var waiting *startupserver.Server
	defer func() {
		if waiting != nil {
			err = errors.Join(err, waiting.Stop())
		}
	}()
	for _, prefix := range prefixes {
		for {
			err := Claim(ctx, etcd, prefix, options)
			var owned *OwnedError
			if !errors.As(err, &owned) {
				if err != nil {
					return err
				}
				break
			}
			if waiting == nil {
				klog.ErrorS(owned, "Another server owns the keys in etcd; waiting until it does not")
				if waiting, err = startupserver.New(serving, check); err != nil {
					return errors.Join(owned, err)
				}
			}
			waiting.SetReason(owned)
			select {
			case <-ctx.Done():
				return errors.Join(owned, ctx.Err())
			case <-time.After(retryInterval):
			}
		}
	}
	return nil
}
