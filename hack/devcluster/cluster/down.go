package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
)

// startOrder is the order in which processes start; they stop in the reverse order, so that no pod is started again.
var startOrder = []string{
	"etcd", "containerd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "certmanager", "hostpath", "kubelet",
}

// Down stops the cluster and removes everything it created on the machine. It is safe without a cluster, or with a part
// of one. It continues after a failure and returns all errors.
func (c *Cluster) Down(ctx context.Context) error {
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	return c.down(ctx)
}

// removeAbandoned removes what is left of a cluster with another state directory whose processes have all ended, after
// a crash or when they were killed from outside. Mounts, bridge and iptables chains outlive processes.
func (c *Cluster) removeAbandoned(ctx context.Context) error {
	owner, err := os.ReadFile(ownerFile)
	if err != nil || c.owned() {
		return nil
	}
	abandoned := *c
	abandoned.Layout = Layout{State: string(owner)}
	for _, name := range startOrder {
		if _, running := abandoned.running(name); running {
			return nil // in use; claim returns the error
		}
	}
	c.Progress("removing what is left of a cluster whose processes have ended (state folder %s)", owner)
	return abandoned.down(ctx)
}

func (c *Cluster) down(ctx context.Context) error {
	if owner, err := os.ReadFile(ownerFile); err == nil && !c.owned() {
		return fmt.Errorf("this machine's cluster has its state in %s: end it with --state %s", owner, owner)
	}
	if !c.marked() && !c.owned() {
		c.Progress("nothing to end: no cluster in %s", c.State)
		return nil
	}
	c.Progress("ending processes and containers")
	var failed []error
	for _, name := range slices.Backward(startOrder) {
		failed = append(failed, c.stop(name))
	}
	failed = append(failed, c.killContainers())
	c.Progress("removing mounts, network and files")
	failed = append(failed,
		unmountBelow(c.State), unmountBelow(runFolder),
		removeNetwork(ctx), c.restoreSysctls(), removeCgroups())
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("the cluster did not end cleanly; run down again: %w", err)
	}
	failed = append(failed, c.removeStrays())
	if c.marked() {
		failed = append(failed, os.RemoveAll(c.State))
	}
	if err := errors.Join(append(failed, os.RemoveAll(runFolder))...); err != nil {
		return fmt.Errorf("removing the cluster's files: %w", err)
	}
	c.Progress("the cluster is gone")
	return nil
}
