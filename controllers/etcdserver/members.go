package etcdserver

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/etcdmember"
)

// Members observes and changes the members of etcds. Package etcdclient implements it.
type Members interface {
	// Observe adds the responses of the members to the facts.
	Observe(ctx context.Context, endpoints []etcd.Endpoint, credentials *tls.Config, facts *etcd.Facts)
	// Repair executes the action of a decision about a member.
	Repair(ctx context.Context, endpoints []etcd.Endpoint, credentials *tls.Config, facts etcd.Facts, decision etcd.Decision) error
	// Defragment compacts and defragments all members, one after the other, and disarms the alarm about space.
	Defragment(ctx context.Context, endpoints []etcd.Endpoint, credentials *tls.Config, facts etcd.Facts) error
	// Credentials reads the credentials of a client from the data of a Secret.
	Credentials(data map[string][]byte) (*tls.Config, error)
}

const (
	// repairInterval is the time between two steps of a repair, downInterval the time between two observations of members that are down,
	// checkInterval of members that serve. No event reports these changes.
	repairInterval = 2 * time.Second
	downInterval   = 10 * time.Second
	checkInterval  = time.Minute
)

// members are the members of a managed etcd during one reconcile.
type members struct {
	observed    bool
	credentials *tls.Config
	facts       etcd.Facts
	decision    etcd.Decision
	record      etcdmember.Record // the desired record
	status      operatorv1alpha1.EtcdStatus
	defragment  string // the value of the annotation that requests it
	volumes     status.Result
}

// observeMembers reads the record, observes the members, and decides about an action. It does not observe members that are about to start
// for the first time.
func (s *Store) observeMembers(ctx context.Context, in Input) error {
	m := &s.members
	if in.Status != nil {
		m.status = *in.Status
	}
	m.record = s.readRecord(in)
	m.defragment = in.Annotations[operatorv1alpha1.AnnotationDefragmentEtcd]
	m.status.ClusterID = m.record.ClusterID
	if s.live == nil || s.Members == nil {
		return nil
	}
	secret, err := s.Cluster.ReadFiles(ctx, s.managed.Owner().Namespace, []string{s.managed.ClientSecret()}, nil)
	if err != nil {
		return err
	}
	client := secret.Secrets[s.managed.ClientSecret()]
	if client == nil {
		return nil
	}
	if m.credentials, err = s.Members.Credentials(client.Data); err != nil {
		return nil // cert-manager has not written it yet; condition CertificatesReady reports it
	}
	m.facts = etcd.Facts{Record: m.record, Confirmed: in.Annotations[operatorv1alpha1.AnnotationEtcdDataLost], Replaced: in.Replaced}
	s.Members.Observe(ctx, s.managed.Endpoints(), m.credentials, &m.facts)
	m.observed, m.decision = true, s.managed.Decide(m.facts)
	switch m.decision.Action {
	case etcd.Record:
		m.record.ClusterID = m.facts.ClusterID
	case etcd.Forget:
		m.record = s.managed.NewRecord(m.record.ClusterID)
	}
	m.status.ClusterID = m.record.ClusterID
	return nil
}

// readRecord returns the record of the bootstrap. It is stored twice: members read the ConfigMap, and the status survives the deletion of
// the ConfigMap. A cluster that is older than records has none until its members have been observed.
func (s *Store) readRecord(in Input) etcdmember.Record {
	if configMap := s.files.ConfigMaps[s.managed.Record()]; configMap != nil {
		record := etcdmember.RecordFrom(configMap.Data)
		if record.ClusterID != "" || record.Token != "" || in.Status == nil || in.Status.ClusterID == "" {
			return record
		}
	}
	switch {
	case in.Status != nil && in.Status.ClusterID != "":
		return etcdmember.Record{ClusterID: in.Status.ClusterID}
	case s.live != nil && in.Served:
		return etcdmember.Record{}
	}
	return s.managed.NewRecord("")
}

// Repair executes one step to repair the members, and reports on them.
func (s *Store) Repair(ctx context.Context) error {
	m := &s.members
	if s.managed == nil {
		return nil
	}
	if m.volumes.Type != "" {
		s.Report.RequeueWithin(downInterval)
		s.Report.SetWorst(m.volumes)
	}
	if !m.observed {
		return nil
	}
	s.Report.RequeueWithin(checkInterval)
	result := m.decision.Healthy
	switch {
	case m.decision.Action != etcd.None || m.decision.IsRepairing() || m.facts.Record.ClusterID == "":
		s.Report.RequeueWithin(repairInterval)
	case result.State != status.Satisfied:
		s.Report.RequeueWithin(downInterval)
	}
	if m.decision.ChangesMembers() {
		if err := s.Members.Repair(ctx, s.managed.Endpoints(), m.credentials, m.facts, m.decision); err != nil && !errors.Is(err, context.Canceled) {
			result.Message += "; etcd does not allow it yet: " + err.Error()
		}
	}
	if m.defragment != "" && m.defragment != m.status.Defragmented && s.managed.MayDefragment(m.facts, m.decision) {
		s.Report.RequeueWithin(repairInterval)
		if err := s.Members.Defragment(ctx, s.managed.Endpoints(), m.credentials, m.facts); err != nil {
			result = status.Warn(operatorv1alpha1.ConditionEtcdHealthy, "DefragmentationFailed", "it is tried again: %v", err)
			s.Report.RequeueWithin(downInterval)
		} else {
			m.status.Defragmented = m.defragment
		}
	}
	if result.Type != "" && (result.State != status.Satisfied || m.volumes.Type == "") {
		s.Report.Set(result)
	}
	return nil
}

// Status returns the status of the etcd for the object. It is nil if the user runs the etcd. It does not change while the etcd is not
// observed.
func (s *Store) Status(before *operatorv1alpha1.EtcdStatus) *operatorv1alpha1.EtcdStatus {
	if s.managed == nil {
		return before
	}
	if s.members.status == (operatorv1alpha1.EtcdStatus{}) {
		return nil
	}
	out := s.members.status
	return &out
}
