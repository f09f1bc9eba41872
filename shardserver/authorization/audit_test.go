package authorization_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization/shardtest"
)

func TestAuditAnnotations(t *testing.T) {
	s := shardtest.Start(t)
	s.CreateCluster(t, clusterA, nil)
	s.Grant(t, clusterA, "alice", shardtest.UserSubject("alice"), access, readConfigMaps)

	own := &request.RequestInfo{Path: "/api/v1/namespaces/default/configmaps/x", Verb: "get"}
	review := &request.RequestInfo{Path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", Verb: "create", APIGroup: "authorization.k8s.io", Resource: "subjectaccessreviews"}
	other := &request.RequestInfo{Path: "/apis/rbac.authorization.k8s.io/v1/clusterroles", Verb: "create", APIGroup: "rbac.authorization.k8s.io", Resource: "clusterroles"}
	for name, tc := range map[string]struct {
		user string
		info *request.RequestInfo
		want map[string]string // decisions by key
	}{
		"request that local RBAC allows": {"alice", own, map[string]string{
			"request.auth.kcp.io/01-requiredgroups-decision":      "Allowed",
			"request.auth.kcp.io/02-content-decision":             "Allowed",
			"request.auth.kcp.io/03-systemcrd-decision":           "Allowed",
			"request.auth.kcp.io/04-maxpermissionpolicy-decision": "Allowed",
			"request.auth.kcp.io/05-bootstrap-decision":           "NoOpinion",
			"request.auth.kcp.io/05-local-decision":               "Allowed",
		}},
		"request that a step denies": {"mallory", own, map[string]string{
			"request.auth.kcp.io/01-requiredgroups-decision": "NoOpinion",
			"request.auth.kcp.io/02-content-decision":        "NoOpinion",
		}},
		"access review": {"mallory", review, map[string]string{
			"sar.auth.kcp.io/01-requiredgroups-decision": "NoOpinion",
			"sar.auth.kcp.io/02-content-decision":        "NoOpinion",
		}},
		"internal check": {"mallory", other, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := audit.WithAuditContext(logicalcluster.With(context.Background(), clusterA))
			ctx = request.WithRequestInfo(ctx, tc.info)
			attributes := getConfigMap(newUser(tc.user))
			attributes.Path = own.Path
			if _, _, err := s.Authorizer.Authorize(ctx, attributes); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for key, value := range audit.AuditContextFrom(ctx).GetEventAnnotations() {
				if strings.HasSuffix(key, "-decision") {
					got[key] = value
				} else if !strings.HasSuffix(key, "-reason") || value == "" {
					t.Errorf("%s = %q", key, value)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
