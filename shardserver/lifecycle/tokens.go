package lifecycle

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// tokenController fills Secrets of type kubernetes.io/service-account-token and deletes them with their service
// account. It reconciles service accounts with all their Secrets.
type tokenController struct {
	cfg      Config
	accounts *storage.Reader[*core.ServiceAccount]
	secrets  *storage.Reader[*core.Secret]
}

func newTokenController(cfg Config) controller.Controller {
	c := &tokenController{
		cfg:      cfg,
		accounts: storage.NewReader[*core.ServiceAccount](cfg.Registry, serviceAccounts),
		secrets:  storage.NewReader[*core.Secret](cfg.Registry, secrets),
	}
	return controller.Controller{
		Name: "serviceaccount-tokens",
		Sources: []controller.Source{
			{Resource: serviceAccounts, MapFunc: deletedAccountKey},
			{Resource: secrets, MapFunc: secretAccountKey},
		},
		Reconcile: c.reconcile,
	}
}

// deletedAccountKey maps the deletion of a service account to it. New accounts have no Secrets: a Secret that was
// created before its account has been deleted.
func deletedAccountKey(event watch.Event) []controller.Request {
	if event.Type != watch.Deleted {
		return nil
	}
	return controller.RequestForObject(event)
}

func secretAccountKey(event watch.Event) []controller.Request {
	secret, ok := event.Object.(*core.Secret)
	if !ok || secret.Type != core.SecretTypeServiceAccountToken || event.Type == watch.Deleted {
		return nil
	}
	return []controller.Request{{ClusterName: logicalcluster.Of(secret), Namespace: secret.Namespace, Name: secret.Annotations[core.ServiceAccountNameKey]}}
}

func (c *tokenController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	all, err := c.secrets.List(ctx, key.Namespace, nil)
	if err != nil {
		return controller.Result{}, err
	}
	var own []*core.Secret
	for _, secret := range all {
		if secret.Type == core.SecretTypeServiceAccountToken && secret.Annotations[core.ServiceAccountNameKey] == key.Name {
			own = append(own, secret)
		}
	}
	if len(own) == 0 {
		return controller.Result{}, nil
	}
	// Secrets may be deleted, so the account is read from etcd.
	account, err := c.accounts.GetLatest(ctx, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		account, err = nil, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	for _, secret := range own {
		if err := c.apply(ctx, account, secret); err != nil {
			return controller.Result{}, fmt.Errorf("token Secret %q of service account %q in namespace %q: %w", secret.Name, key.Name, key.Namespace, err)
		}
	}
	return controller.Result{}, nil
}

func (c *tokenController) apply(ctx context.Context, account *core.ServiceAccount, secret *core.Secret) error {
	if !belongs(account, secret) {
		precondition := client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}
		return client.IgnoreNotFound(c.cfg.Clients.Typed.Delete(ctx, externalSecret(secret), precondition))
	}
	missing := findMissing(secret, account.UID, c.cfg.rootCA())
	if !missing.any() {
		return nil
	}
	filled := externalSecret(secret)
	if missing.token {
		claims, private := serviceaccount.LegacyClaims(externalAccount(account), *filled)
		token, err := c.cfg.Tokens.GenerateToken(ctx, claims, private)
		if err != nil {
			return fmt.Errorf("signing the token: %w", err)
		}
		filled.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	if missing.ca {
		filled.Data[corev1.ServiceAccountRootCAKey] = c.cfg.rootCA()
	}
	if missing.namespace {
		filled.Data[corev1.ServiceAccountNamespaceKey] = []byte(secret.Namespace)
	}
	metav1.SetMetaDataAnnotation(&filled.ObjectMeta, corev1.ServiceAccountUIDKey, string(account.UID))
	return ignoreTerminatingNamespace(c.cfg.Clients.Typed.Update(ctx, filled))
}

// belongs reports whether a Secret belongs to this account, and not to an earlier one of the same name.
func belongs(account *core.ServiceAccount, secret *core.Secret) bool {
	if account == nil {
		return false
	}
	uid := secret.Annotations[core.ServiceAccountUIDKey]
	return uid == "" || uid == string(account.UID)
}

// missingData is the data that a token Secret lacks.
type missingData struct{ token, ca, namespace, uid bool }

func (m missingData) any() bool { return m.token || m.ca || m.namespace || m.uid }

func findMissing(secret *core.Secret, account types.UID, rootCA []byte) missingData {
	return missingData{
		token:     len(secret.Data[core.ServiceAccountTokenKey]) == 0,
		ca:        len(rootCA) > 0 && !bytes.Equal(secret.Data[core.ServiceAccountRootCAKey], rootCA),
		namespace: len(secret.Data[core.ServiceAccountNamespaceKey]) == 0,
		uid:       secret.Annotations[core.ServiceAccountUIDKey] != string(account),
	}
}

// externalSecret returns a copy of a Secret in the API version of clients.
func externalSecret(secret *core.Secret) *corev1.Secret {
	secret = secret.DeepCopy()
	external := &corev1.Secret{ObjectMeta: secret.ObjectMeta, Immutable: secret.Immutable, Data: secret.Data, Type: corev1.SecretType(secret.Type)}
	if external.Data == nil {
		external.Data = map[string][]byte{}
	}
	return external
}

// externalAccount returns the fields that token claims are derived from.
func externalAccount(account *core.ServiceAccount) corev1.ServiceAccount {
	return corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name, UID: account.UID}}
}
