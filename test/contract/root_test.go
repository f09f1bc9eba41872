package contract

import "strings"

// rootRows covers the initial content of root: the exports that every workspace binds (4.4), the workspace types
// (3.8), and their permissions (6.7, 9.3).
func rootRows() []row {
	const root = "/clusters/root"
	rows := []row{
		{"4.4", "the tenancy export has a maximal permission policy", "admin", root + exports + "/tenancy.kcp.io", "", 200, 200, `"maximalPermissionPolicy":{"local":{}}`},
		{"4.3", "the identity of an export refers to a secret", "admin", root + exports + "/tenancy.kcp.io", "", 200, 200, `"identity":{"secretRef":{"name":"tenancy.kcp.io","namespace":"kcp-system"}}`},
		{"4.3", "the identity secret exists", "masters", root + namespaces + "/kcp-system/secrets/tenancy.kcp.io", "", 200, 403, `"key":`},
		{"8.5", "the identity cache of the shard", "masters", "/clusters/system:shard" + configMaps + "/apiexport-identity-cache", "", 200, 403, `"tenancy.kcp.io":"{tenancy}"`},
		{"4.6", "definitions of bound resources", "masters", "/clusters/system:bound-crds" + definitions, "", 200, 403, `"apis.kcp.io/bound-crd":"","apis.kcp.io/schema-cluster":"{a}","apis.kcp.io/schema-name":"v1.widgets.example.io"`},
		{"4.6", "definitions of bound resources are Forbidden for users", "admin", "/clusters/system:bound-crds" + definitions, "", 403, 403, ""},

		{"3.8", "type root", "admin", root + types + "/root", "", 200, 200, `"spec":{"extend":{"with":[{"name":"universal","path":"root"}]},"defaultChildWorkspaceType":{"name":"organization","path":"root"},"limitAllowedParents":{"none":true}}`},
		{"3.8", "type universal", "admin", root + types + "/universal", "", 200, 200, `"spec":{"initializer":true,"defaultChildWorkspaceType":{"name":"universal","path":"root"},"defaultAPIBindings":[{"path":"root","export":"tenancy.kcp.io"},{"path":"root","export":"topology.kcp.io"}]}`},
		{"3.8", "type home", "admin", root + types + "/home", "", 200, 200, `"limitAllowedParents":{"none":true}`},
		{"3.8", "type organization", "admin", root + types + "/organization", "", 200, 200, `"limitAllowedChildren":{"types":[{"name":"universal","path":"root"}]},"limitAllowedParents":{"types":[{"name":"root","path":"root"}]}`},
		{"3.8", "type team", "admin", root + types + "/team", "", 200, 200, `"limitAllowedParents":{"types":[{"name":"organization","path":"root"},{"name":"team","path":"root"}]}`},

		{"6.7", "any user lists workspace types", "mallory", root + types, "", 200, 200, ""},
		{"6.7", "any user gets the logical cluster", "mallory", root + ownClusterPath, "", 200, 200, ""},
		{"6.7", "list of shards is Forbidden", "mallory", root + shards, "", 403, 403, ""},
		{"6.7", "list of bindings is Forbidden", "mallory", root + bindings, "", 403, 403, ""},
		{"6.7", "administrators get the status of types", "alice", "/clusters/{a}" + types + "/nope/status", "", 404, 404, ""},
		{"6.7", "write of the status of types is Forbidden", "alice", "PATCH /clusters/{a}" + types + "/nope/status", `{}`, 403, 403, "access denied"},
		{"6.7", "administrators create partitions", "alice", "POST /clusters/{a}/apis/topology.kcp.io/v1alpha1/partitions" + dryRun, `{"metadata":{"name":"x"},"spec":{}}`, 201, 201, ""},

		{"4.12", "invalid key in a shard selector", "alice", "POST /clusters/{a}/apis/topology.kcp.io/v1alpha1/partitionsets" + dryRun, `{"metadata":{"name":"x"},"spec":{"dimensions":["region"],"shardSelector":{"matchExpressions":[{"key":"a b","operator":"Exists"}]}}}`, 422, 422, "matchExpressions"},
		{"4.12", "invalid operator in a shard selector", "alice", "POST /clusters/{a}/apis/topology.kcp.io/v1alpha1/partitionsets" + dryRun, `{"metadata":{"name":"x"},"spec":{"dimensions":["region"],"shardSelector":{"matchExpressions":[{"key":"a","operator":"Gt"}]}}}`, 422, 422, "operator"},
	}
	for _, schema := range []string{
		"v260522-2bf05df66.workspaces.tenancy.kcp.io", "v260519-96f2749.workspacetypes.tenancy.kcp.io", "v250827-717cfea84.workspaceauthenticationconfigurations.tenancy.kcp.io",
		"v240903-d6797056a.partitions.topology.kcp.io", "v240903-d6797056a.partitionsets.topology.kcp.io", "v260302-ae9fdd9c1.shards.core.kcp.io",
		"v250920-de0c8484d.clustercachedresources.cache.kcp.io", "v260804-b35f3bb61.clustercachedresourceendpointslices.cache.kcp.io",
		"v260702-7381341f5.logicalclustermigrations.migration.kcp.io", "v260702-7381341f5.logicalclusterdumps.migration.kcp.io",
	} {
		_, group, _ := strings.Cut(schema[strings.Index(schema, ".")+1:], ".")
		if group == "core.kcp.io" {
			group = "shards." + group
		}
		rows = append(rows,
			row{"4.4", "schema " + schema, "admin", root + schemas + "/" + schema, "", 200, 200, ""},
			row{"4.4", "export of " + schema, "admin", root + exports + "/" + group, "", 200, 200, `"schema":"` + schema + `"`},
			row{"9.3", "binding in root", "admin", root + bindings + "/" + group, "", 200, 200, `"schema":{"name":"` + schema + `"`},
			row{"9.3", "binding of the shard", "masters", "/clusters/system:shard" + bindings + "/" + group, "", 200, 403, `"phase":"Bound"`})
	}
	for _, name := range []string{
		"system:kcp:workspace:access", "system:kcp:tenancy:reader", "system:kcp:apiexport:tenancy:bind", "system:kcp:apiexport:topology:bind",
		"system:kcp:apiexport:tenancy:maximal-permission-policy", "system:kcp:apiexport:topology:maximal-permission-policy",
		"system:kcp:apiexport:kcp-admin:maximal-permission-policy", "system:kcp:universal-workspacetype-use", "system:kcp:home-clusterworkspace-create",
	} {
		rows = append(rows, row{"6.7", "cluster role " + name, "admin", root + "/apis/rbac.authorization.k8s.io/v1/clusterroles/" + name, "", 200, 200, ""})
	}
	for path, resources := range map[string]string{
		"/apis/topology.kcp.io/v1alpha1": "partitions partitionsets partitionsets/status",
		"/apis/cache.kcp.io/v1alpha1":    "clustercachedresources clustercachedresources/status clustercachedresourceendpointslices clustercachedresourceendpointslices/status",
	} {
		for _, resource := range strings.Fields(resources) {
			rows = append(rows, row{"9.3", resource + " in " + path, "bob", "/clusters/{b}" + path, "", 200, 200, `"name":"` + resource + `"`})
		}
	}
	return append(rows,
		row{"9.3", "shards API in root", "admin", root + "/apis/core.kcp.io/v1alpha1", "", 200, 200, `"name":"shards"`},
		row{"9.3", "migrations are Forbidden until they work", "admin", "POST " + root + "/apis/migration.kcp.io/v1alpha1/logicalclustermigrations", `{"apiVersion":"migration.kcp.io/v1alpha1","kind":"LogicalClusterMigration","metadata":{"name":"x"},"spec":{"logicalCluster":"x","destinationShard":"root"}}`, 403, 403, "cannot be moved between shards while the feature gate"},
		row{"9.3", "migrations API in root", "admin", root + "/apis/migration.kcp.io/v1alpha1", "", 200, 200, `"name":"logicalclustermigrations/status"`},
		row{"9.3", "no migrations API outside of root", "bob", "/clusters/{b}/apis/migration.kcp.io/v1alpha1", "", 404, 404, ""})
}
