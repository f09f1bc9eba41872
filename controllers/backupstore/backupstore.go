// Package backupstore reconciles BackupStores: it checks from time to time that a bucket can be listed, so that an error is known before
// the next Backup. Pods of Backups use the store; this package only checks it, and resolves it for them.
package backupstore

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/backup/objectstore"
	"github.com/atoll-dev/atoll/internal/backup/seal"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=backupstores,verbs=get;list;watch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=backupstores/status,verbs=get;patch

const (
	// checkInterval is the time between two checks of a store without a change, checkTimeout the time that one may take.
	checkInterval = 10 * time.Minute
	checkTimeout  = 20 * time.Second
)

// NewReconciler returns the reconciler of BackupStores.
func NewReconciler(config reconcile.Config) *reconcile.Reconciler[*operatorv1alpha1.BackupStore] {
	return &reconcile.Reconciler[*operatorv1alpha1.BackupStore]{
		Config: config,
		Watches: reconcile.Watches[*operatorv1alpha1.BackupStore]{
			Name:  "backupstore",
			For:   &operatorv1alpha1.BackupStore{},
			List:  &operatorv1alpha1.BackupStoreList{},
			Files: []client.Object{&corev1.Secret{}},
		},
		NewScope: func(store *operatorv1alpha1.BackupStore, report *status.Report) reconcile.Scope {
			return &scope{cluster: config.Cluster, report: report, store: store}
		},
	}
}

// scope is one BackupStore during a reconcile.
type scope struct {
	cluster apply.Cluster
	report  *status.Report
	store   *operatorv1alpha1.BackupStore

	access  access
	missing *operatorv1alpha1.SecretKeyReference
}

// access is what a request to a store needs besides its specification.
type access struct {
	ca   []byte
	keys objectstore.Credentials
}

// Observe implements reconcile.Scope.
func (s *scope) Observe(ctx context.Context) (err error) {
	s.access, s.missing, err = readAccess(ctx, s.cluster, s.store, s.store.Spec.S3Credentials)
	return err
}

// readAccess reads the Secrets of a store with these credentials, or says which key is missing.
func readAccess(ctx context.Context, cluster apply.Cluster, store *operatorv1alpha1.BackupStore, credentials operatorv1alpha1.S3Credentials) (out access, missing *operatorv1alpha1.SecretKeyReference, err error) {
	refs := map[*operatorv1alpha1.SecretKeyReference]func([]byte){
		&credentials.AccessKeyID:     func(value []byte) { out.keys.AccessKeyID = trimmed(value) },
		&credentials.SecretAccessKey: func(value []byte) { out.keys.SecretAccessKey = trimmed(value) },
	}
	if ref := credentials.SessionToken; ref != nil {
		refs[ref] = func(value []byte) { out.keys.SessionToken = trimmed(value) }
	}
	if ref := store.Spec.EndpointCA; ref != nil {
		refs[ref] = func(value []byte) { out.ca = value }
	}
	for ref, set := range refs {
		secret, err := apply.Get[corev1.Secret](ctx, cluster, store.Namespace, ref.Name)
		if err != nil {
			return access{}, nil, err
		}
		if secret == nil || len(secret.Data[ref.Key]) == 0 {
			return access{}, ref, nil
		}
		set(secret.Data[ref.Key])
	}
	return out, nil, nil
}

// Open opens a store for the installation of a RootShard, with other credentials than its own if some are given. An error that is an
// objectstore.Error has what the user has to do.
func Open(ctx context.Context, cluster apply.Cluster, store *operatorv1alpha1.BackupStore, rootShard string, other *operatorv1alpha1.S3Credentials) (*objectstore.Store, error) {
	return OpenFor(ctx, cluster, store, store.Namespace, rootShard, other)
}

// OpenFor is Open for the installation of a RootShard that was in any namespace.
func OpenFor(ctx context.Context, cluster apply.Cluster, store *operatorv1alpha1.BackupStore, namespace, rootShard string, other *operatorv1alpha1.S3Credentials) (*objectstore.Store, error) {
	credentials := store.Spec.S3Credentials
	if other != nil {
		credentials = *other
	}
	access, missing, err := readAccess(ctx, cluster, store, credentials)
	if err != nil {
		return nil, err
	}
	if missing != nil {
		return nil, &objectstore.Error{Reason: status.ReasonSecretNotFound, Message: fmt.Sprintf("Secret %s with key %s does not exist in namespace %s: create it, or correct the reference", missing.Name, missing.Key, store.Namespace)}
	}
	return objectstore.OpenWith(ConfigFor(store, namespace, rootShard), access.ca, access.keys)
}

// trimmed is a key without the end of the line of a file, as pods read it.
func trimmed(value []byte) string { return strings.TrimSpace(string(value)) }

// Steps implements reconcile.Scope.
func (s *scope) Steps() []reconcile.Step {
	return []reconcile.Step{{Name: "check the store", Run: s.check}}
}

func (s *scope) check(ctx context.Context) error {
	if s.missing != nil {
		s.report.Set(status.Wait(operatorv1alpha1.ConditionReachable, status.ReasonSecretNotFound,
			"Secret %s with key %s does not exist in namespace %s: create it, or correct the reference", s.missing.Name, s.missing.Key, s.store.Namespace))
		return nil
	}
	s.report.RequeueWithin(checkInterval)
	if _, err := seal.ParseRecipients(s.store.Spec.Encryption.Recipients); err != nil {
		s.report.Set(status.Stall(operatorv1alpha1.ConditionReachable, objectstore.ReasonInvalidSpec, "encryption.recipients: %v", err))
		return nil
	}
	store, err := objectstore.OpenWith(Config(s.store, ""), s.access.ca, s.access.keys)
	if err == nil {
		defer store.Close()
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		err = store.Check(ctx)
	}
	var known *objectstore.Error
	switch {
	case err == nil:
		s.report.Set(status.OK(operatorv1alpha1.ConditionReachable, "Listed", "the server lists bucket %s; whether it stores objects is known after the first Backup", s.store.Spec.Bucket))
	case errors.As(err, &known) && known.Reason == objectstore.ReasonInvalidSpec:
		s.report.Set(status.Stall(operatorv1alpha1.ConditionReachable, known.Reason, "%s", known.Message))
	case errors.As(err, &known):
		// The cause may pass, or be corrected on the server, without an event here.
		s.report.Set(status.Wait(operatorv1alpha1.ConditionReachable, known.Reason, "%s", known.Message))
	default:
		return fmt.Errorf("checking the store: %w", err)
	}
	return nil
}

// SetStatus implements reconcile.Scope.
func (s *scope) SetStatus() {
	out := &s.store.Status
	out.ObservedGeneration = s.store.Generation
	out.Conditions = s.report.Conditions(out.Conditions, s.store.Generation)
}

// Config returns the configuration of a store for the installation of a RootShard, without the files of its credentials. An empty name is
// for all installations.
func Config(store *operatorv1alpha1.BackupStore, rootShard string) config.Store {
	return ConfigFor(store, store.Namespace, rootShard)
}

// ConfigFor is Config for the installation of a RootShard that was in any namespace.
func ConfigFor(store *operatorv1alpha1.BackupStore, namespace, rootShard string) config.Store {
	out := config.Store{
		EndpointURL: store.Spec.EndpointURL, Bucket: store.Spec.Bucket, Prefix: path.Join(store.Spec.Prefix, namespace, rootShard), Region: store.Spec.Region,
		AddressingStyle: string(store.Spec.AddressingStyle), Recipients: store.Spec.Encryption.Recipients,
	}
	if rate := store.Spec.MaxUploadRate; rate != nil {
		out.UploadBytesPerSecond = rate.Value()
	}
	if lock := store.Spec.ObjectLock; lock != nil {
		out.ObjectLock = &config.ObjectLock{Mode: string(lock.Mode), RetainSeconds: int64(lock.RetainFor.Seconds())}
	}
	return out
}
