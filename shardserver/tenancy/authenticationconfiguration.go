package tenancy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/issuers"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// configurationComponent is the source of events about authentication configurations.
	configurationComponent = "kcp-workspace-authentication"
	// maxEventMessage is the limit of upstream for messages of events.
	maxEventMessage = 1024
)

// configurationController reports authentication configurations that the schema accepts but that authenticate no token.
// The kind has no status, so it creates events.
type configurationController struct {
	cfg            Config
	configurations *storage.Reader[*tenancyv1alpha1.WorkspaceAuthenticationConfiguration]
}

func newConfigurationController(cfg Config) controller.Controller {
	c := &configurationController{cfg, storage.NewReader[*tenancyv1alpha1.WorkspaceAuthenticationConfiguration](cfg.Registry, authenticationConfigurations)}
	return controller.Controller{
		Name:                    "workspaceauthenticationconfiguration",
		Sources:                 []controller.Source{{Resource: authenticationConfigurations, MapFunc: controller.RequestForObject}},
		MaxConcurrentReconciles: 1,
		Reconcile:               c.reconcile,
	}
}

func (c *configurationController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	configuration, err := c.configurations.Get(ctx, "", key.Name)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	problems := issuers.Validate(configuration.Spec.JWT, field.NewPath("spec", "jwt"))
	if len(problems) == 0 {
		return controller.Result{}, nil
	}
	event := newConfigurationEvent(configuration, problems.ToAggregate().Error())
	_, err = c.cfg.Clients.Kubernetes.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) { // reported before, or there is no namespace for it
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, fmt.Errorf("reporting the problems of authentication configuration %q: %w", key.Name, err)
	}
	return controller.Result{}, nil
}

// newConfigurationEvent returns the event about problems. Its name depends on them, so that it is created once.
func newConfigurationEvent(configuration *tenancyv1alpha1.WorkspaceAuthenticationConfiguration, problems string) *corev1.Event {
	message := "Tokens cannot be authenticated: " + problems
	if len(message) > maxEventMessage {
		message = strings.ToValidUTF8(message[:maxEventMessage-3], "") + "..."
	}
	hash := sha256.Sum256([]byte(string(configuration.UID) + problems))
	name := strings.TrimRight(fmt.Sprintf("%.200s", configuration.Name), "-.") // as the name of an object requires
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s.%x", name, hash[:8])},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: tenancyv1alpha1.SchemeGroupVersion.String(), Kind: "WorkspaceAuthenticationConfiguration",
			Name: configuration.Name, UID: configuration.UID, ResourceVersion: configuration.ResourceVersion,
		},
		Reason: "InvalidConfiguration", Message: message, Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: configurationComponent}, ReportingController: configurationComponent,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}
