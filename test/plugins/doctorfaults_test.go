package plugins

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/plugin/doctor"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/sharded"
)

// canary is in everything that must not be in a bundle.
const canary = "canary-0b5e"

// certificateDefinition has of cert-manager's Certificate what the command reads.
const certificateDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: certificates.cert-manager.io}
spec:
  group: cert-manager.io
  names: {kind: Certificate, listKind: CertificateList, plural: certificates, singular: certificate}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// hostManifests are an installation whose etcd lacks a member, whose front proxy is stalled, whose last backup has failed, and whose operator does not run.
const hostManifests = `
apiVersion: operator.kcp.io/v1alpha1
kind: RootShard
metadata: {name: main, namespace: default, annotations: {note: canary-0b5e}}
spec:
  external: {hostname: kcp.example.com, port: 6443}
  extraArgs: ["--oidc-client-id=canary-0b5e"]
status:
  conditions:
  - {type: Ready, status: "True", reason: Ready, message: "", lastTransitionTime: "2020-01-01T00:00:00Z"}
  - {type: EtcdHealthy, status: "False", reason: MemberMissing, message: canary-0b5e, lastTransitionTime: "2020-01-01T00:00:00Z"}
---
apiVersion: operator.kcp.io/v1alpha1
kind: FrontProxy
metadata: {name: edge, namespace: default}
spec: {rootShard: {ref: {name: main}}}
status:
  conditions:
  - {type: Ready, status: "False", reason: SecretNotFound, message: canary-0b5e, lastTransitionTime: "2020-01-01T00:00:00Z"}
  - {type: Stalled, status: "True", reason: SecretNotFound, message: canary-0b5e, lastTransitionTime: "2020-01-01T00:00:00Z"}
---
apiVersion: operator.kcp.io/v1alpha1
kind: Kubeconfig
metadata: {name: jane, namespace: default}
spec: {username: jane, validity: 720h, secretRef: {name: jane}, target: {frontProxyRef: {name: edge}}}
status:
  conditions:
  - {type: Ready, status: "False", reason: Waiting, message: canary-0b5e, lastTransitionTime: "2020-01-01T00:00:00Z"}
---
apiVersion: operator.kcp.io/v1alpha1
kind: BackupStore
metadata: {name: offsite, namespace: default}
spec:
  endpointURL: https://s3.example.com
  bucket: canary-0b5e
  s3Credentials: {accessKeyId: {name: s3, key: canary-0b5e}, secretAccessKey: {name: s3, key: secretAccessKey}}
  encryption: {recipients: [age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p]}
status:
  conditions:
  - {type: Ready, status: "True", reason: Reachable, message: "", lastTransitionTime: "2020-01-01T00:00:00Z"}
---
apiVersion: operator.kcp.io/v1alpha1
kind: Backup
metadata: {name: last, namespace: default}
spec: {rootShardRef: {name: main}, storeRef: {name: offsite}}
status:
  phase: Failed
  conditions:
  - {type: Ready, status: "False", reason: AttemptsFailed, message: canary-0b5e, lastTransitionTime: "2020-01-01T00:00:00Z"}
---
apiVersion: operator.kcp.io/v1alpha1
kind: BackupSchedule
metadata: {name: nightly, namespace: default}
spec: {rootShardRef: {name: main}, storeRef: {name: offsite}, schedule: "@daily"}
status:
  observedGeneration: 1
  conditions:
  - {type: Ready, status: "False", reason: Overdue, message: canary-0b5e, lastTransitionTime: "2020-01-01T00:00:00Z"}
  - {type: Current, status: "False", reason: Overdue, message: canary-0b5e, lastTransitionTime: "2020-01-01T00:00:00Z"}
---
apiVersion: operator.kcp.io/v1alpha1
kind: CacheServer
metadata: {name: late, namespace: default}
spec: {}
status:
  observedGeneration: -1
  conditions:
  - {type: Ready, status: "True", reason: canary_0b5e, message: "", lastTransitionTime: "2020-01-01T00:00:00Z"}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: main-server, namespace: default}
spec: {commonName: canary-0b5e}
status:
  notBefore: "2020-01-01T00:00:00Z"
  notAfter: "2020-04-01T00:00:00Z"
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: main-client, namespace: default}
status:
  notBefore: "2020-01-01T00:00:00Z"
  notAfter: "2100-01-01T00:00:00Z"
  renewalTime: "2020-03-01T00:00:00Z"
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: 239f9f9a.operator.kcp.io, namespace: default}
spec: {holderIdentity: canary-0b5e, leaseDurationSeconds: 15, renewTime: "2020-01-01T00:00:00.000000Z"}
---
apiVersion: v1
kind: Secret
metadata: {name: s3, namespace: default}
stringData: {secretAccessKey: canary-0b5e}
`

// create creates the objects of manifests, with their status.
func create(t *testing.T, config *rest.Config, manifests string) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(manifests, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		status, hasStatus := object.Object["status"]
		shardtesting.Eventually(t, object.GetKind()+" "+object.GetName()+" is created", func(ctx context.Context) error {
			return client.IgnoreAlreadyExists(c.Create(ctx, object))
		})
		if kind := object.GetKind(); hasStatus && kind != "Certificate" { // whose definition has no subresource
			object.Object["status"] = status
			if err := c.Status().Update(t.Context(), object); err != nil {
				t.Fatalf("the status of %s %s: %v", kind, object.GetName(), err)
			}
		}
	}
	return c
}

// hostCluster makes a workspace look like a cluster with an operator, and returns its kubeconfig.
func hostCluster(t *testing.T, i *installation.Installation) string {
	config := i.NewWorkspace(t, "doctor-host", "operator")
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions in config/crd/bases: %v", err)
	}
	definitions := []string{certificateDefinition}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		definitions = append(definitions, strings.TrimPrefix(string(text), "---\n"))
	}
	create(t, config, strings.Join(definitions, "\n---\n"))
	create(t, config, hostManifests)
	file := filepath.Join(t.TempDir(), "host.kubeconfig")
	installation.WriteKubeconfig(t, config, file)
	return file
}

// breakTenants makes what tenants and providers can break.
func breakTenants(t *testing.T, i *installation.Installation) {
	create(t, i.Admin(t, "root"), `
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: nowhere, annotations: {note: canary-0b5e}}
spec: {type: {name: universal, path: root}, location: {selector: {matchLabels: {name: canary-0b5e}}}}
---
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: prepared}
spec: {initializer: true}
---
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: unprepared}
spec: {type: {name: prepared, path: root}}
`)
	// A workspace whose content stays.
	lingering := i.NewWorkspace(t, "lingering", "owner", shardtesting.OnShard(installation.Alpha))
	create(t, lingering, `
apiVersion: v1
kind: ConfigMap
metadata: {name: kept, namespace: default, finalizers: [canary-0b5e.example.org/kept]}
data: {password: canary-0b5e}
`)
	root, err := client.New(i.Admin(t, "root"), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := root.Delete(t.Context(), object("tenancy.kcp.io/v1alpha1", "Workspace", "", "lingering")); err != nil {
		t.Fatal(err)
	}

	// An export with another identity, and a slice with an endpoint of nobody.
	exportHorses(t, i, "doctor-impostor")
	breeder, err := client.New(i.User(t, "root:doctor-impostor", "breeder"), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	export := object("apis.kcp.io/v1alpha2", "APIExport", "", "horses")
	if err := breeder.Get(t.Context(), client.ObjectKeyFromObject(export), export); err != nil {
		t.Fatal(err)
	}
	name, _, _ := unstructured.NestedString(export.Object, "spec", "identity", "secretRef", "name")
	namespace, _, _ := unstructured.NestedString(export.Object, "spec", "identity", "secretRef", "namespace")
	other := base64.StdEncoding.EncodeToString([]byte(canary))
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"key":"`+other+`"}}`))
	if err := breeder.Patch(t.Context(), object("v1", "Secret", namespace, name), patch); err != nil {
		t.Fatal(err)
	}
	administrator, err := client.New(i.Admin(t, "root:doctor-impostor"), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	patch = client.RawPatch("application/merge-patch+json", []byte(`{"status":{"endpoints":[{"url":"https://`+canary+`.example.com/services/apiexport/x/`+canary+`"}]}}`))
	if err := administrator.Status().Patch(t.Context(), object("apis.kcp.io/v1alpha1", "APIExportEndpointSlice", "", "horses"), patch); err != nil {
		t.Fatal(err)
	}

	// A binding whose export is gone.
	exportHorses(t, i, "doctor-farm")
	i.NewWorkspace(t, "doctor-meadow", "rider")
	u := newUser(t, i, i.Admin(t, "root:doctor-meadow"))
	if got := u.kcp("bind apiexport root:doctor-farm:horses"); got.err != "" {
		t.Fatal(got)
	}
	farm, err := client.New(i.User(t, "root:doctor-farm", "breeder"), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := farm.Delete(t.Context(), object("apis.kcp.io/v1alpha2", "APIExport", "", "horses")); err != nil {
		t.Fatal(err)
	}
}

// breakOwners makes a logical cluster without a Workspace, and a Workspace without its logical cluster.
func breakOwners(t *testing.T, i *installation.Installation) (lost string) {
	masters := i.Masters(t, installation.Alpha)
	create(t, shardtesting.At(masters, "doctororphan"), `
apiVersion: core.kcp.io/v1alpha1
kind: LogicalCluster
metadata: {name: cluster}
spec: {owner: {apiVersion: tenancy.kcp.io/v1alpha1, resource: workspaces, cluster: root, name: doctor-gone, uid: 3f0b6a0e-0b5e-4c1c-9d0e-0b5e3f0b6a0e}}
`)
	i.NewWorkspace(t, "doctor-lost", "owner", shardtesting.OnShard(installation.Alpha))
	root, err := client.New(i.Admin(t, "root"), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	workspace := object("tenancy.kcp.io/v1alpha1", "Workspace", "", "doctor-lost")
	if err := root.Get(t.Context(), client.ObjectKeyFromObject(workspace), workspace); err != nil {
		t.Fatal(err)
	}
	lost, _, _ = unstructured.NestedString(workspace.Object, "spec", "cluster")
	inside, err := client.New(shardtesting.At(masters, lost), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cluster := object("core.kcp.io/v1alpha1", "LogicalCluster", "", "cluster")
	if err := inside.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the logical cluster is gone", func(ctx context.Context) error {
		err := inside.Patch(ctx, cluster, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("it exists: %w", err)
	})
	return lost
}

func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetAPIVersion(apiVersion)
	out.SetKind(kind)
	out.SetNamespace(namespace)
	out.SetName(name)
	return out
}

// fault is a finding that is expected.
type fault struct {
	check, object, message string
	severity               doctor.Severity
}

// isFound returns an error unless all faults are among the findings.
func (e examination) isFound(faults []fault) error {
	var errs []error
	for _, f := range faults {
		found := false
		for _, finding := range e.of(f.check, f.object) {
			found = found || finding.Severity == f.severity && strings.Contains(finding.Message, f.message) && finding.NextStep != "" && finding.Runbook != ""
		}
		if !found {
			errs = append(errs, fmt.Errorf("%+v is not found, but %+v", f, e.of(f.check, "")))
		}
	}
	return errors.Join(errs...)
}

// testFaults runs after all other tests: it breaks the installation.
func testFaults(t *testing.T, i *installation.Installation) {
	host, shards := hostCluster(t, i), shardsKubeconfig(t, i)
	breakTenants(t, i)
	lost := breakOwners(t, i)
	u := newUser(t, i, i.Admin(t, "root"))
	u.expect(u.kcp("cordon beta"), commandOutput{out: "Shard \"beta\" is closed for new workspaces.\n"})

	ofTenants := []fault{
		{"workspaces", "nowhere", "has no shard: Unschedulable", doctor.SeverityError},
		{"workspaces", "unprepared", "waits for root:prepared", doctor.SeverityWarning},
		{"workspaces", "lingering", "SomeResourcesRemain", doctor.SeverityWarning},
		{"exports", "horses", "identity is not valid: IdentityVerificationFailed", doctor.SeverityWarning},
		{"endpoint-slices", "horses", "1 endpoints are at no address of a shard", doctor.SeverityWarning},
		{"bindings", "horses", "APIExportValid is False: APIExportNotFound", doctor.SeverityWarning},
		{"shards", "beta", "is cordoned", doctor.SeverityInfo},
	}
	ofHost := []fault{
		{"operator", "RootShard default/main", "EtcdHealthy is False: MemberMissing", doctor.SeverityError},
		{"operator", "FrontProxy default/edge", "is stalled: SecretNotFound", doctor.SeverityError},
		{"operator", "Lease default/239f9f9a.operator.kcp.io", "none has renewed it since 2020-01-01", doctor.SeverityError},
		{"operator", "Kubeconfig default/jane", "is not ready: Waiting", doctor.SeverityError},
		{"operator", "CacheServer default/late", "the operator has not read its last change", doctor.SeverityError},
		{"backups", "BackupSchedule default/nightly", "two Backups in a row", doctor.SeverityError},
		{"host-certificates", "main-server", "has expired at 2020-04-01", doctor.SeverityError},
		{"host-certificates", "main-client", "has not been renewed: that was due at 2020-03-01", doctor.SeverityWarning},
		{"backups", "default/main", "its last Backup last has failed", doctor.SeverityError},
		{"backups", "default/main", "has no completed Backup", doctor.SeverityWarning},
	}
	for name, run := range map[string]struct {
		flags  string
		faults []fault
	}{
		"through the front proxy": {"", ofTenants},
		"at the shards":           {"--shards-kubeconfig " + shards, ofTenants},
		"owners": {"--deep --shards-kubeconfig " + shards, []fault{
			{"orphans", "doctororphan", "its Workspace root/doctor-gone does not exist", doctor.SeverityWarning},
			{"orphans", "doctor-lost", "no shard has its logical cluster " + lost, doctor.SeverityError},
		}},
		"in the host cluster": {"--max-workspaces 1 --host-kubeconfig " + host, ofHost},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUser(t, i, i.Admin(t, "root"))
			shardtesting.Eventually(t, "the faults are found", func(context.Context) error {
				got := u.doctor("--grace 0s " + run.flags)
				if got.code != 1 {
					return fmt.Errorf("the exit code is %d: %s", got.code, got.err)
				}
				return got.isFound(run.faults)
			})
		})
	}
	t.Run("bundle", func(t *testing.T) { testBundle(t, i, host, shards) })
	t.Run("no access", func(t *testing.T) {
		tenant := newUser(t, i, i.User(t, "root", "mallory"))
		if got := tenant.doctor(""); got.code != 2 || !strings.Contains(got.err, "need an administrator of the installation") {
			t.Errorf("got %d, %+v", got.code, got.commandOutput)
		}
		if got := tenant.doctor("--deep"); got.code != 2 || !strings.Contains(got.err, "--shards-kubeconfig") {
			t.Errorf("got %d, %+v", got.code, got.commandOutput)
		}
	})
	t.Run("expired credentials", func(t *testing.T) {
		config, err := i.Layout().ClientFor(-time.Minute, i.URL, "kcp-admin", "system:kcp:admin")
		if err != nil {
			t.Fatal(err)
		}
		got := newUser(t, i, shardtesting.At(config, "root")).doctor("")
		if err := got.isFound([]fault{{"certificates", "kubeconfig", "has expired", doctor.SeverityError}}); err != nil || got.code != 1 {
			t.Errorf("%d, %v, %s", got.code, err, got.commandOutput.err)
		}
	})
	t.Run("expired credentials of shards", func(t *testing.T) {
		config, err := i.Layout().ClientFor(-time.Minute, i.URL, "shard-admin", "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "expired.kubeconfig")
		installation.WriteKubeconfig(t, config, file)
		got := u.doctor("--shards-kubeconfig " + file)
		if err := got.isFound([]fault{{"certificates", "kubeconfig of the shards", "has expired", doctor.SeverityError}}); err != nil {
			t.Error(err)
		}
		if found := got.of("shard-servers", ""); len(found) > 0 {
			t.Errorf("shards are blamed: %+v", found)
		}
		if result := got.result("shard-servers"); result.Status != doctor.StatusIncomplete || !slices.ContainsFunc(result.Reasons, func(reason string) bool { return strings.Contains(reason, "credentials refused") }) {
			t.Errorf("got %+v", result)
		}
	})
	t.Run("servers", func(t *testing.T) { testBrokenServers(t, i, shards) })
}

// testBundle searches an archive for what must not be in it, and compares it with the complete output, which has it.
func testBundle(t *testing.T, i *installation.Installation, host, shards string) {
	u := newUser(t, i, i.Admin(t, "root"))
	file := filepath.Join(t.TempDir(), "doctor.tar.gz")
	got := u.kcp("doctor --grace 0s --deep --shards-kubeconfig " + shards + " --host-kubeconfig " + host + " --bundle " + file)
	if !strings.Contains(got.out, canary) {
		t.Errorf("the table has no messages of conditions: %s", got.out)
	}
	contains(t, got.out, "SEVERITY", "CHECK", "OBJECT", "FINDING", "NEXT STEP")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	content := unpack(t, file)
	config := i.Admin(t, "root")
	key, err := os.ReadFile(config.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{canary, "canary_0b5e", base64.StdEncoding.EncodeToString([]byte(canary)), strings.Split(string(key), "\n")[1], "PRIVATE KEY", "Bearer"} {
		if bytes.Contains(content, []byte(secret)) {
			t.Errorf("%q is in the bundle", secret)
		}
	}
	for _, needed := range []string{doctor.APIVersion, "Unschedulable", "nowhere", "IdentityVerificationFailed", "atoll_etcd_quota_bytes", "MemberMissing"} {
		if !bytes.Contains(content, []byte(needed)) {
			t.Errorf("%q is not in the bundle", needed)
		}
	}
	if got := u.kcp("doctor --max-workspaces 1 --bundle " + file); !strings.Contains(got.err, "exists") {
		t.Errorf("an existing file is replaced: %+v", got)
	}
}

func unpack(t *testing.T, name string) []byte {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	uncompressed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var content bytes.Buffer
	for files := tar.NewReader(uncompressed); ; {
		if _, err := files.Next(); errors.Is(err, io.EOF) {
			return content.Bytes()
		} else if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&content, files); err != nil {
			t.Fatal(err)
		}
	}
}

// testBrokenServers kills a shard, lets the certificate of another one expire, and then kills the root shard and the front proxy.
func testBrokenServers(t *testing.T, i *installation.Installation, shards string) {
	u := newUser(t, i, i.Admin(t, "root"))
	if err := i.Layout().Reissue(installation.Beta, -time.Minute); err != nil {
		t.Fatal(err)
	}
	i.Kill(t, installation.Alpha)
	shardtesting.EventuallyWithin(t, 2*time.Minute, "the shards are found", func(context.Context) error {
		got := u.doctor("--deep --shards-kubeconfig " + shards)
		if result := got.result("orphans"); result.Status != doctor.StatusSkipped {
			t.Fatalf("without a shard, everything is an orphan: %+v", result)
		}
		return got.isFound([]fault{
			{"shard-servers", "alpha", "does not answer", doctor.SeverityError},
			{"shard-servers", "beta", "does not answer", doctor.SeverityError},
			{"certificates", "beta", "its serving certificate has expired", doctor.SeverityError},
		})
	})
	i.Kill(t, installation.Root)
	shardtesting.Eventually(t, "the root shard is found", func(context.Context) error {
		got := u.doctor("")
		return errors.Join(got.isFound([]fault{{"front-proxy", "root shard", "does not answer through the front proxy", doctor.SeverityError}}), got.hasEnded(1))
	})
	i.Kill(t, sharded.FrontProxy)
	got := u.doctor("")
	if err := got.isFound([]fault{{"front-proxy", "front proxy", "does not answer", doctor.SeverityError}}); err != nil || got.code != 1 {
		t.Errorf("%d, %v", got.code, err)
	}
	if result := got.result("workspaces"); result.Status != doctor.StatusSkipped || len(result.Reasons) == 0 {
		t.Errorf("got %+v", result)
	}
}
