package shardserver

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/filters/audit"
	"github.com/atoll-dev/atoll/shardserver/filters/audit/sinks"
	"github.com/atoll-dev/atoll/shardserver/filters/audit/workspacelog"
)

// applyAudit configures where audit events go: to the log and webhook of stock flags, to sinks for selected workspaces, and to the log that workspaces
// read.
func (d *dependencies) applyAudit(context.Context) error {
	if err := d.options.Audit.ApplyTo(d.generic); err != nil {
		return err
	}
	var routes []audit.Route
	if d.generic.AuditBackend != nil && d.generic.AuditPolicyRuleEvaluator != nil {
		routes = append(routes, audit.Route{Policy: d.generic.AuditPolicyRuleEvaluator, Backend: d.generic.AuditBackend})
	}
	if file := d.options.AuditSinksFile; file != "" {
		selected, err := sinks.Load(file, d.logicalClusters)
		if err != nil {
			return fmt.Errorf("--audit-sinks-file: %w", err)
		}
		routes = append(routes, selected...)
	}
	d.isAudited = len(routes) > 0
	if bytes := d.options.WorkspaceAuditBytes; bytes > 0 {
		d.workspaceLog = workspacelog.New(workspacelog.Config{Bytes: bytes, Find: d.find, IsGone: d.isGone})
		routes = append(routes, d.workspaceLog.Route())
	}
	if len(routes) > 0 {
		router := audit.NewRouter(routes)
		d.generic.AuditBackend, d.generic.AuditPolicyRuleEvaluator = router, router
	}
	return nil
}

// forgetDeleted removes what a shard has of a logical cluster that was deleted.
func (d *dependencies) forgetDeleted(cluster logicalcluster.Name) {
	d.usage.Forget(cluster)
	if d.workspaceLog != nil {
		d.workspaceLog.Forget(cluster)
	}
}

// deletionRecorder returns what adds deletions by controllers to the audit log. Those are not in workspaceLog, like all that controllers do.
func (d *dependencies) deletionRecorder() func(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) {
	if !d.isAudited {
		return nil
	}
	return audit.NewDeletionRecorder(d.generic)
}
