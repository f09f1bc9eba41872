package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Defaults for the lease of a shard's controllers, as in kcp.
const (
	DefaultLeaseNamespace = "kube-system"
	DefaultLeaseName      = "kcp-controllers"

	// kcp's lease duration of a minute would stop scheduling and deletion of workspaces for a minute after a leader was
	// killed. Clients observe only the Lease, which contains its duration.
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// Election is a Lease in the logical cluster system:admin that one replica of a shard holds at a time.
type Election struct {
	// Client is a loopback client: its requests go to the cluster of their context.
	Client coordinationv1client.CoordinationV1Interface
	// Namespace and Name of the Lease; empty means the defaults.
	Namespace, Name string
	// Identity of this replica; empty means "<hostname>_<uuid>".
	Identity string

	// Overrides of the default durations for tests.
	leaseDuration, renewDeadline, retryPeriod time.Duration
}

func (e *Election) validate() error {
	if e.Client == nil {
		return errors.New("leader election needs a client")
	}
	return nil
}

// run enters the election again and again until the context ends. lead is called while this replica is the leader and
// must return when its context ends.
func (e *Election) run(ctx context.Context, lead func(context.Context)) error {
	cfg, err := e.config()
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := runTerm(ctx, cfg, lead); err != nil {
			return err
		}
	}
	return nil
}

// runTerm takes part in one election. The lease is released only after lead has returned, so that the controllers of two
// leaders never run concurrently.
func runTerm(ctx context.Context, cfg leaderelection.LeaderElectionConfig, lead func(context.Context)) error {
	leaseCtx, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()

	elected := make(chan context.Context, 1)
	cfg.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: func(leaderCtx context.Context) { elected <- leaderCtx },
		OnStoppedLeading: func() {},
	}
	elector, err := leaderelection.NewLeaderElector(cfg)
	if err != nil {
		return fmt.Errorf("preparing leader election: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		elector.Run(leaseCtx)
	}()
	select {
	case <-ctx.Done():
	case <-done:
	case leaderCtx := <-elected:
		workCtx, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(leaderCtx, cancel)
		klog.FromContext(ctx).Info("Leading: controllers start", "identity", cfg.Lock.Identity())
		lead(workCtx)
		klog.FromContext(ctx).Info("Controllers stopped", "identity", cfg.Lock.Identity())
		stop()
		cancel()
	}
	release()
	<-done
	return nil
}

func (e *Election) config() (leaderelection.LeaderElectionConfig, error) {
	identity := e.Identity
	if identity == "" {
		hostname, err := os.Hostname()
		if err != nil {
			return leaderelection.LeaderElectionConfig{}, fmt.Errorf("naming this replica for leader election: %w", err)
		}
		identity = hostname + "_" + uuid.NewString()
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: orDefault(e.Namespace, DefaultLeaseNamespace), Name: orDefault(e.Name, DefaultLeaseName)},
		Client:     e.Client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	return leaderelection.LeaderElectionConfig{
		Name:            lock.LeaseMeta.Name,
		Lock:            adminLock{lock},
		LeaseDuration:   orDefault(e.leaseDuration, leaseDuration),
		RenewDeadline:   orDefault(e.renewDeadline, renewDeadline),
		RetryPeriod:     orDefault(e.retryPeriod, retryPeriod),
		ReleaseOnCancel: true,
	}, nil
}

// adminLock reads and writes a lock in system:admin. The elector releases the lease with a context of its own, so the
// logical cluster cannot come from the context that started it.
type adminLock struct{ resourcelock.Interface }

func (l adminLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return l.Interface.Get(logicalcluster.With(ctx, logicalcluster.Admin))
}

func (l adminLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Interface.Create(logicalcluster.With(ctx, logicalcluster.Admin), record)
}

func (l adminLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Interface.Update(logicalcluster.With(ctx, logicalcluster.Admin), record)
}

func orDefault[T comparable](value, defaultValue T) T {
	var zero T
	if value == zero {
		return defaultValue
	}
	return value
}
