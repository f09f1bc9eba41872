package dynamic

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// maxWebhooks bounds the number of different webhooks that are cached with their clients and compiled conditions, per
// plug-in.
const maxWebhooks = 1024

// webhooks calls the webhooks of configurations C that apply to the request's logical cluster (sourceOf).
type webhooks[C storedObject] struct {
	plugins    *Plugins
	dispatcher generic.Dispatcher
	reader     *storage.Reader[C]
	existence  *existenceIndex
	prepared   preparedCache[*hooks]
	// shared caches webhooks by content: all logical clusters with equal ones share a client and compiled conditions.
	// The CA bundle of a client is part of its webhook's content.
	shared *lruCache[contentKey, webhook.WebhookAccessor]
	// ownRequests limits the shard's own requests, by the logical cluster of the webhooks.
	ownRequests *semaphores
	// webhooksOf returns the webhooks of a configuration.
	webhooksOf func(C) ([]webhookDefinition, error)
}

// webhookDefinition is one webhook of a configuration.
type webhookDefinition struct {
	name string
	// content is the complete definition of the webhook, which identifies it in the cache.
	content  any
	rules    []admissionregistrationv1.RuleWithOperations
	accessor func(uid string) webhook.WebhookAccessor
}

// hooks are the webhooks of a logical cluster at some revisions of its configurations.
type hooks struct {
	accessors []webhook.WebhookAccessor
	rules     []admissionregistrationv1.RuleWithOperations
}

func newWebhooks[C storedObject](plugins *Plugins, resource string, dispatcher generic.Dispatcher, webhooksOf func(C) ([]webhookDefinition, error)) *webhooks[C] {
	reader := storage.NewReader[C](plugins.config.Registry, admissionregistration.Resource(resource)).Global()
	prepared := newPreparedCache[*hooks]()
	existence := plugins.newExistenceIndex(reader, prepared.remove)
	plugins.webhookIndexes = append(plugins.webhookIndexes, existence)
	return &webhooks[C]{
		plugins: plugins, dispatcher: dispatcher, reader: reader, existence: existence,
		prepared: prepared, shared: newLRUCache[contentKey, webhook.WebhookAccessor](maxWebhooks),
		ownRequests: newSemaphores(), webhooksOf: webhooksOf,
	}
}

// dispatch calls the webhooks that match a request.
func (w *webhooks[C]) dispatch(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if rules.IsExemptAdmissionConfigurationResource(a) || isInternalWrite(a) {
		return nil
	}
	cluster, err := clusterOf(ctx)
	if err != nil {
		return err
	}
	source := w.plugins.sourceOf(ctx, cluster, a)
	if w.existence.isAbsent(ctx, source) {
		w.prepared.remove(source)
		return nil
	}
	configurations, err := listAll(logicalcluster.With(ctx, source), w.reader)
	if err != nil {
		return toReadError(err)
	}
	if len(configurations) == 0 {
		w.prepared.remove(source)
		return nil
	}
	prepared, err := w.prepared.get(source, appendRevisions(nil, configurations), func() (*hooks, error) { return w.prepare(configurations) })
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("preparing the webhooks of the workspace: %w", err))
	}
	if isLoopback(a.GetUserInfo()) && prepared.matches(a) {
		release, err := w.ownRequests.acquire(ctx, source)
		if err != nil {
			return err
		}
		defer release()
	}
	defer addClusterAnnotation(cluster, a)()
	return sanitizeStatusCode(w.dispatcher.Dispatch(ctx, a, o, w.plugins.newWebhookScope(ctx, source, a).wrap(prepared.accessors)))
}

// prepare builds the webhooks of configurations. Configurations are ordered by name, and so are the calls, as upstream.
func (w *webhooks[C]) prepare(configurations []C) (*hooks, error) {
	prepared := &hooks{}
	for _, configuration := range configurations {
		declared, err := w.webhooksOf(configuration)
		if err != nil {
			return nil, fmt.Errorf("reading the webhook configuration %q: %w", configuration.GetName(), err)
		}
		names := map[string]int{}
		for _, one := range declared {
			// Names need not be unique within a configuration.
			uid := fmt.Sprintf("%s/%s/%d", configuration.GetName(), one.name, names[one.name])
			names[one.name]++
			encoded, err := json.Marshal([]any{uid, one.content})
			if err != nil {
				return nil, fmt.Errorf("reading the webhook %q: %w", uid, err)
			}
			accessor := w.shared.getOrAdd(sha256.Sum256(encoded), func() webhook.WebhookAccessor { return one.accessor(uid) })
			prepared.accessors = append(prepared.accessors, accessor)
			prepared.rules = append(prepared.rules, one.rules...)
		}
	}
	return prepared, nil
}

// matches reports whether a webhook's rules match a request. Selectors and conditions are evaluated by the dispatcher.
func (h *hooks) matches(a admission.Attributes) bool {
	return slices.ContainsFunc(h.rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return (&rules.Matcher{Rule: rule, Attr: a}).Matches()
	})
}

// sanitizeStatusCode returns a refusal with a valid status code. Webhooks choose codes freely, and net/http panics at
// codes of more than three digits, which would abort the response.
func sanitizeStatusCode(err error) error {
	var refused *apierrors.StatusError
	if errors.As(err, &refused) && refused.ErrStatus.Code > 599 {
		refused.ErrStatus.Code = http.StatusBadRequest
	}
	return err
}
