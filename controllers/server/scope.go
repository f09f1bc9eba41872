// Package server contains the common parts of the scopes of all kinds with a server: the results of resolving and validating a spec, the
// etcd and the Deployment, and the steps that are the same for every kind. The package of each kind observes and renders its objects, and
// defines the order of its steps.
package server

import (
	"context"
	"strings"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/etcdserver"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/workload"
)

// Scope is the server of one object during a reconcile. The scopes of the kinds embed it. Observe sets the results.
type Scope struct {
	reconcile.Config
	Report *status.Report

	Reference  status.Result // to the installation; without a type for a kind that belongs to none
	Spec       status.Result // without a type while the reference does not resolve
	References status.Result // to the other objects that the spec names; without a type if all exist
	// Unreachable is the result about an etcd whose hosts DNS does not resolve; without a type if DNS resolves them.
	Unreachable status.Result
	Etcd        etcdserver.Store
	Deployment  workload.Deployment
	// Issued are the Secrets that cert-manager creates for the server and for its installation; nil if these are unknown.
	Issued []string
}

// NewScope returns the scope of an object whose Deployment has a name.
func NewScope(config reconcile.Config, report *status.Report, namespace, name string) Scope {
	return Scope{
		Config: config, Report: report,
		Etcd:       etcdserver.Store{Cluster: config.Cluster, Gate: config.Gate, Report: report, Now: config.Now, Members: config.Etcd},
		Deployment: config.NewDeployment(report, operatorv1alpha1.ConditionAvailable, namespace, name),
	}
}

// ReportReference reports on the installation that the object belongs to.
func (s *Scope) ReportReference(context.Context) error {
	s.Report.Set(s.Reference)
	return nil
}

// Validate stops the reconcile if the spec is invalid, or without an installation. It does not change running pods, and reports their
// state.
func (s *Scope) Validate(context.Context) error {
	s.Report.SetWorst(s.Spec)
	if s.Reference.State != status.Satisfied || s.Spec.State == status.Stalled {
		s.Deployment.ReportLive()
		return reconcile.ErrStop
	}
	return nil
}

// CheckReferences reports on the other objects that the spec names.
func (s *Scope) CheckReferences(context.Context) error {
	s.Report.SetWorst(status.Join(s.References, s.Unreachable))
	return nil
}

// CheckEndpoints reports endpoints of an etcd that DNS does not resolve, while no pod has reached it. Pods do not wait for that, because
// their DNS may resolve more names.
func (s *Scope) CheckEndpoints(ctx context.Context, namespace string, spec *operatorv1alpha1.EtcdConfig) {
	if spec == nil || s.LookupHost == nil || s.Deployment.IsAvailable() {
		return
	}
	if hosts := etcd.FindUnknownHosts(ctx, s.LookupHost, namespace, spec.Endpoints); len(hosts) > 0 {
		s.Unreachable = status.Wait(operatorv1alpha1.ConditionSpecHonored, "EtcdNotFound",
			"DNS does not know %s of etcd.endpoints: correct etcd.endpoints, or create the Service or DNS record", strings.Join(hosts, " and "))
	}
}

// Prepare makes the pods wait for the references, the certificates and a managed etcd. They do not wait for other servers, because each
// server waits for these itself.
func (s *Scope) Prepare(context.Context) error {
	mistakes := status.Join(s.References, s.Unreachable, s.Deployment.FindMissing(s.Issued))
	if mistakes.Type != "" && s.Report.Get(mistakes.Type).State != status.Stalled {
		s.Report.Set(mistakes)
	}
	s.Deployment.Prepare(s.References, s.Report.Get(operatorv1alpha1.ConditionCertificatesReady), s.Report.Get(operatorv1alpha1.ConditionEtcdAvailable))
	return nil
}

// EtcdServerSteps returns the steps of a server with its own etcd.
func (s *Scope) EtcdServerSteps(issueCertificates func(context.Context) error) []reconcile.Step {
	return []reconcile.Step{
		{Name: "validate the spec", Run: s.Validate},
		{Name: "check references", Run: s.CheckReferences},
		{Name: "issue certificates", Run: issueCertificates},
		{Name: "configure etcd", Run: s.Etcd.Configure},
		{Name: "admit the rollout of etcd", Run: s.Etcd.AdmitRollout},
		{Name: "apply etcd", Run: s.Etcd.Apply},
		{Name: "repair etcd", Run: s.Etcd.Repair},
		{Name: "configure the server", Run: s.Deployment.Configure},
		{Name: "prepare the server", Run: s.Prepare},
		{Name: "admit the rollout of the server", Run: s.Deployment.AdmitRollout},
		{Name: "apply the server", Run: s.Deployment.Apply},
	}
}
