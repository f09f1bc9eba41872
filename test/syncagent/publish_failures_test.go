package syncagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/test/programs"
)

// expectReason waits until a condition is false for a reason, with a message that includes the remedy.
func (e *env) expectReason(t *testing.T, p *syncagentv1alpha1.PublishedResource, kind, reason, message string) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%s of %s is %s", kind, p.Name, reason), func(ctx context.Context) error {
		if err := e.Service.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		for _, condition := range p.Status.Conditions {
			if condition.Type == kind && condition.Status == metav1.ConditionFalse && condition.Reason == reason && strings.Contains(condition.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("conditions are %+v", p.Status.Conditions)
	})
}

func TestM1NumberOfPublishedResources(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	first := e.Publish(t, "widgets", Of(e.Define(t, "Widget")))
	address := programs.FreeAddress(t)
	e.start(t, e.Options(t), "--metrics-address="+address)
	expect := func(want string) {
		t.Helper()
		shardtesting.Eventually(t, "the metric is "+want, func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
			if err != nil {
				return err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err != nil {
				return err
			}
			for line := range bytes.Lines(text) {
				if value, ok := strings.CutPrefix(string(line), "sync_agent_published_resource "); ok && strings.TrimSpace(value) == want {
					return nil
				}
			}
			return errors.New("it is not")
		})
	}
	expect("1")
	// The second never has a schema. It is selected nevertheless; one of another agent is not.
	second := e.Publish(t, "none", e.parse(t, "resource: {apiGroup: $GROUP, kind: None}"))
	expect("2")
	other := &syncagentv1alpha1.PublishedResource{ObjectMeta: metav1.ObjectMeta{Name: e.Name + "-other"}, Spec: second.Spec}
	create(t, e.Service, other)
	t.Cleanup(func() { _ = e.Service.Delete(context.Background(), other) })
	if err := e.Service.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	expect("1")
}

func TestDefinitionsAreInstalledAndRemovedWhilePublished(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.Publish(t, "widgets", e.parse(t, "resource: {apiGroup: $GROUP, kind: Widget}"))
	e.Agent(t)
	e.expectReason(t, p, syncagentv1alpha1.ConditionSchemaReady, "SourceNotFound", "Install its CustomResourceDefinition")
	e.expectReason(t, p, syncagentv1alpha1.ConditionExported, "NoSchema", "see the condition SchemaReady")
	expectEvent(t, e.Service, p.Name, corev1.EventTypeWarning, "ReconcilingError", "serves no kind Widget")

	e.Define(t, "Widget")
	found := e.published(t, p, "widgets."+e.Group)
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets." + e.Group}}
	if err := e.Service.Delete(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	e.expectReason(t, p, syncagentv1alpha1.ConditionSchemaReady, "SourceNotFound", "Install its CustomResourceDefinition")
	if p.Status.ResourceSchemaName != found.Name || len(e.apiExport(t).Spec.LatestResourceSchemas) != 1 {
		t.Errorf("consumers lose the API: the status names %q, the export has %v", p.Status.ResourceSchemaName, e.apiExport(t).Spec.LatestResourceSchemas)
	}

	e.Define(t, "Widget")
	if again := e.published(t, p, "widgets."+e.Group); again.UID != found.UID {
		t.Errorf("the same definition has schema %s, not %s again", again.Name, found.Name)
	}
}

func TestSchemasThatAreRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Define(t, "Widget")
	refused := e.Publish(t, "refused", e.parse(t, "{resource: {apiGroup: $GROUP, kind: Widget}, projection: {group: core}}"))
	nothing := e.Publish(t, "nothing", e.parse(t, "resource: {apiGroup: $GROUP, kind: Widget, versions: [v7]}"))
	good := e.Publish(t, "good", e.parse(t, "{resource: {apiGroup: $GROUP, kind: Widget}}"))
	e.Agent(t)
	e.published(t, good, "widgets."+e.Group)
	e.expectReason(t, refused, syncagentv1alpha1.ConditionSchemaReady, "SchemaRefused", "Change the CustomResourceDefinition or spec.projection.")
	e.expectReason(t, nothing, syncagentv1alpha1.ConditionSchemaReady, "InvalidSpec", "the service cluster serves v1")
	second := e.Publish(t, "second", e.parse(t, "{resource: {apiGroup: $GROUP, kind: Widget}}"))
	e.expectReason(t, second, syncagentv1alpha1.ConditionExported, "ResourceAlreadyPublished", good.Name)

	change(t, e.Service, nothing, func(p *syncagentv1alpha1.PublishedResource) {
		p.Spec.Resource.Versions, p.Spec.Projection = []string{"v1"}, &syncagentv1alpha1.ResourceProjection{Plural: "corrected"}
	})
	e.published(t, nothing, "corrected."+e.Group)
}

func TestTheExportIsCreatedLater(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	provider := newClient(t, e.Provider)
	if err := provider.Delete(t.Context(), e.apiExport(t)); err != nil {
		t.Fatal(err)
	}
	p := e.Publish(t, "widgets", Of(e.Define(t, "Widget")))
	e.Agent(t)
	e.expectReason(t, p, syncagentv1alpha1.ConditionExported, "ExportNotFound", "Create an empty one")
	create(t, provider, &apisv1alpha1.APIExport{ObjectMeta: metav1.ObjectMeta{Name: e.Name}})
	e.published(t, p, "widgets."+e.Group)
}

// broken fails all requests while it is set.
type broken struct{ atomic.Bool }

func (b *broken) wrap(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &breakable{b, next} })
}

type breakable struct {
	broken *broken
	next   http.RoundTripper
}

func (b *breakable) RoundTrip(request *http.Request) (*http.Response, error) {
	if b.broken.Load() {
		return nil, errors.New("the server is away")
	}
	return b.next.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (b *breakable) WrappedRoundTripper() http.RoundTripper { return b.next }

func TestPublishingGoesOnWhenServersAreBack(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kcpAway, serviceAway := &broken{}, &broken{}
	e.AgentOver(t, func(kcp, service *rest.Config) {
		kcpAway.wrap(kcp)
		serviceAway.wrap(service)
	})
	p := e.Publish(t, "widgets", Of(e.Define(t, "Widget")))
	e.published(t, p, "widgets."+e.Group)

	kcpAway.Store(true)
	change(t, e.Service, p, func(p *syncagentv1alpha1.PublishedResource) {
		p.Spec.Projection = &syncagentv1alpha1.ResourceProjection{Kind: "Ding"}
	})
	e.expectReason(t, p, syncagentv1alpha1.ConditionSchemaReady, "ReconcilingError", "the server is away")
	kcpAway.Store(false)
	e.published(t, p, "dings."+e.Group)

	serviceAway.Store(true)
	change(t, e.Service, p, func(p *syncagentv1alpha1.PublishedResource) { p.Spec.Projection.Kind = "Sache" })
	serviceAway.Store(false)
	e.published(t, p, "saches."+e.Group)
}

func TestControllersOfPublishingCanBeDisabled(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.Publish(t, "widgets", Of(e.Define(t, "Widget")))
	first := e.Agent(t, func(o *options.Options) { o.DisabledControllers = []string{options.APIExportController} })
	e.expectCondition(t, p, syncagentv1alpha1.ConditionSchemaReady, metav1.ConditionTrue)
	if schemas := e.apiExport(t).Spec.LatestResourceSchemas; len(schemas) > 0 {
		t.Errorf("the export has %v, though its controller is disabled", schemas)
	}
	first.Stop(t)
	if err := e.Service.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	provider, previous := newClient(t, e.Provider), p.Status.ResourceSchemaName
	e.Agent(t, func(o *options.Options) { o.DisabledControllers = []string{options.APIResourceSchemaController} })
	change(t, e.Service, p, func(p *syncagentv1alpha1.PublishedResource) {
		p.Spec.Projection = &syncagentv1alpha1.ResourceProjection{Kind: "Ding"}
	})
	e.expectCondition(t, p, syncagentv1alpha1.ConditionExported, metav1.ConditionTrue)
	schemas := &apisv1alpha1.APIResourceSchemaList{}
	if err := provider.List(t.Context(), schemas); err != nil || len(schemas.Items) != 1 || schemas.Items[0].Name != previous {
		t.Errorf("there are %d schemas (%v), though their controller is disabled", len(schemas.Items), err)
	}
}
