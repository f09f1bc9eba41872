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

// Down stops the cluster and removes everything that it created on the machine. It is safe without a cluster, or with a part of one. It
// continues after a failure and returns all errors.
func (c *Cluster) Down(ctx context.Context) error {
	unlock, err := acquireLock()
	if err != nil {
		return err
	}
	defer unlock()
	return c.removeCluster(ctx)
}

// removeAbandoned removes the remains of a cluster with another state directory whose processes have all ended, after a crash or when
// they were killed from outside. Mounts, bridge and iptables chains outlive processes.
func (c *Cluster) removeAbandoned(ctx context.Context) error {
	owner, err := os.ReadFile(ownerFile)
	if err != nil || c.isOwner() {
		return nil
	}
	abandoned := *c
	abandoned.Layout = Layout{State: string(owner)}
	for _, name := range startOrder {
		if _, running := abandoned.runningPID(name); running {
			return nil // in use; claim returns the error
		}
	}
	c.Progress("removing what is left of a cluster whose processes have ended (state folder %s)", owner)
	return abandoned.removeCluster(ctx)
}

func (c *Cluster) removeCluster(ctx context.Context) error {
	if owner, err := os.ReadFile(ownerFile); err == nil && !c.isOwner() {
		return fmt.Errorf("this machine's cluster has its state in %s: end it with --state %s", owner, owner)
	}
	if !c.hasMarker() && !c.isOwner() {
		c.Progress("nothing to end: no cluster in %s", c.State)
		return nil
	}
	c.Progress("ending processes and containers")
	var errs []error
	for _, name := range slices.Backward(startOrder) {
		errs = append(errs, c.stop(name))
	}
	errs = append(errs, c.killContainers())
	c.Progress("removing mounts, network and files")
	errs = append(errs,
		unmountBelow(c.State), unmountBelow(runDir),
		removeNetwork(ctx), c.restoreSysctls(), removeCgroups())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the cluster did not end cleanly; run down again: %w", err)
	}
	errs = append(errs, c.removeSharedFiles())
	if c.hasMarker() {
		errs = append(errs, os.RemoveAll(c.State))
	}
	if err := errors.Join(append(errs, os.RemoveAll(runDir))...); err != nil {
		return fmt.Errorf("removing the cluster's files: %w", err)
	}
	c.Progress("the cluster is removed")
	return nil
}
