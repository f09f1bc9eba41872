package admission

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	clientgodynamic "k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/admission/core"
	"github.com/atoll-dev/atoll/shardserver/admission/dynamic"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

func TestShardURLDefaults(t *testing.T) {
	base := corev1alpha1.ShardSpec{BaseURL: "https://base"}
	full := corev1alpha1.ShardSpec{BaseURL: "https://base", ExternalURL: "https://out", VirtualWorkspaceURL: "https://vw"}
	for name, tc := range map[string]struct{ in, want corev1alpha1.ShardSpec }{
		"defaults to the base URL": {base, corev1alpha1.ShardSpec{BaseURL: "https://base", ExternalURL: "https://base", VirtualWorkspaceURL: "https://base"}},
		"given URLs are kept":      {full, full},
	} {
		t.Run(name, func(t *testing.T) {
			obj := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "root"}, Spec: tc.in}
			q := admissiontest.Request{Cluster: "root", Resource: rules.Shards, Name: "root", User: admissiontest.Master, Operation: admission.Create, Object: obj}
			if err := admissiontest.AdmitAndValidate(t, core.NewShard(rules.Config{}), q); err != nil || obj.Spec != tc.want {
				t.Fatalf("got %+v, %v", obj.Spec, err)
			}
		})
	}
	t.Run("missing base URL is an internal error", func(t *testing.T) {
		q := admissiontest.Request{Cluster: "root", Resource: rules.Shards, Name: "root", User: admissiontest.Master, Operation: admission.Update, Object: &corev1alpha1.Shard{}, Old: &corev1alpha1.Shard{}}
		err := admissiontest.AdmitAndValidate(t, core.NewShard(rules.Config{}), q)
		if err == nil || err.Error() != "spec.baseURL is required" || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			t.Fatalf("got %v", err)
		}
	})
}

// withDynamic sets Config.Dynamic.
func withDynamic(t *testing.T, config rules.Config) rules.Config {
	t.Helper()
	client, err := clientgodynamic.NewForConfig(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	config.Dynamic, err = dynamic.New(dynamic.Config{
		Registry: config.Registry, Authorizer: config.Authorizer, Custom: client,
		Scheme: legacyscheme.Scheme, OpenAPI: &common.OpenAPIV3Config{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestNew(t *testing.T) {
	complete := withDynamic(t, admissiontest.NewShard().Config())
	for name, tc := range map[string]struct {
		change  func(*rules.Config)
		wantErr string
	}{
		"complete":                   {func(*rules.Config) {}, ""},
		"no registry":                {func(c *rules.Config) { c.Registry = nil }, "no registry"},
		"no types":                   {func(c *rules.Config) { c.Types = nil }, "no resolver"},
		"no exports":                 {func(c *rules.Config) { c.Exports = nil }, "no resolver of exports"},
		"no authorizer":              {func(c *rules.Config) { c.Authorizer = nil }, "no authorizer"},
		"no deep reviews":            {func(c *rules.Config) { c.WithDeepSAR = nil }, "deep"},
		"no dynamic admission":       {func(c *rules.Config) { c.Dynamic = nil }, "webhooks"},
		"disabled plug-in":           {func(c *rules.Config) { c.Disabled = sets.New("kcp.io/PathAnnotation") }, ""},
		"enabled plug-in":            {func(c *rules.Config) { c.Enabled = sets.New("apis.kcp.io/ReservedMetadata") }, ""},
		"unknown plug-in to disable": {func(c *rules.Config) { c.Disabled = sets.New("kcp.io/Nope") }, `unknown plug-ins to disable: ["kcp.io/Nope"], want of ["CertificateApproval"`},
		"unknown plug-in to enable":  {func(c *rules.Config) { c.Enabled = sets.New("kcp.io/Nope") }, "unknown plug-ins to enable"},
		"disabled plug-in of Kubernetes that does not run here": {func(c *rules.Config) { c.Disabled = sets.New("PodSecurity", "LimitRanger") }, ""},
		"enabled plug-in of Kubernetes that does not run here":  {func(c *rules.Config) { c.Enabled = sets.New("PodSecurity") }, `no logical cluster can have: ["PodSecurity"]`},
		"plug-in both enabled and disabled": {func(c *rules.Config) {
			c.Enabled, c.Disabled = sets.New("kcp.io/PathAnnotation"), sets.New("kcp.io/PathAnnotation")
		}, "both"},
	} {
		t.Run(name, func(t *testing.T) {
			config := complete
			tc.change(&config)
			_, err := New(config)
			if (tc.wantErr == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.wantErr)) {
				t.Fatalf("got %v", err)
			}
		})
	}
	if names := Names(); slices.Index(names, "WorkspaceNamespaceLifecycle") > slices.Index(names, "tenancy.kcp.io/Workspace") || slices.Index(names, "tenancy.kcp.io/Workspace") > slices.Index(names, "tenancy.kcp.io/WorkspaceTypeExists") {
		t.Errorf("order %v differs from the contract", names)
	}
}

// TestChain sends a workspace and a type through all plug-ins.
func TestChain(t *testing.T) {
	state := admissiontest.NewShard().
		Cluster("root", logicalcluster.PathAnnotationKey, "root", admissiontest.TypeKey, "root:root").
		Add("root", admissiontest.WorkspaceType("root", "root", admissiontest.Extending(admissiontest.TypeReference("root", "universal"))), true).
		Add("root", admissiontest.WorkspaceType("root", "universal"), true).
		Allow("alice use root/workspacetypes/universal")
	chain, err := New(withDynamic(t, state.Config()))
	if err != nil {
		t.Fatal(err)
	}

	w := admissiontest.Workspace(func(w *tenancyv1alpha1.Workspace) {
		w.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal"}
	})
	q := admissiontest.Request{Cluster: "root", Resource: rules.Workspaces, Name: "team", User: admissiontest.Alice, Operation: admission.Create, Object: w}
	if err := admissiontest.AdmitAndValidate(t, chain, q); err != nil {
		t.Fatal(err)
	}
	if w.Spec.Type.String() != "root:universal" || !strings.Contains(w.Annotations[admissiontest.OwnerKey], `"username":"alice"`) {
		t.Errorf("got type %q, annotations %v", w.Spec.Type, w.Annotations)
	}

	q = admissiontest.Request{Cluster: "root", Resource: rules.WorkspaceTypes, Name: "system", User: admissiontest.Master, Operation: admission.Create, Object: admissiontest.WorkspaceType("root", "system")}
	admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, chain, q), "name is reserved")
}
