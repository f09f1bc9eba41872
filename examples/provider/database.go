package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// claimRetryInterval is the interval of retries until a consumer accepts the claim. The provider receives no event when
// it does.
const claimRetryInterval = 2 * time.Second

// databases reconciles the Databases of all workspaces behind a URL.
type databases struct{ *workspaces }

// Reconcile provides one database: it writes the address of the database to the status, and to a config map for the
// pods of the consumer. The export claims that config map.
func (d *databases) Reconcile(ctx context.Context, req request) (ctrl.Result, error) {
	c, err := d.client(req.Cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	database := &unstructured.Unstructured{}
	database.SetGroupVersionKind(databaseKind)
	err = c.Get(ctx, req.NamespacedName, database)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return ctrl.Result{}, nil // deleted, or not accessible because the consumer has unbound
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if !database.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, nil
	}
	host := fmt.Sprintf("%s.%s.%s.databases.example.org", req.Name, req.Namespace, req.Cluster)
	err = d.publish(ctx, c, database, host)
	if apierrors.IsForbidden(err) {
		status := map[string]any{"phase": "Waiting", "host": host, "message": "accept the claim for configmaps of the APIBinding"}
		return ctrl.Result{RequeueAfter: claimRetryInterval}, d.setStatus(ctx, c, database, status)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, d.setStatus(ctx, c, database, map[string]any{"phase": "Ready", "host": host})
}

// publish writes the config map, which is owned by the database.
func (d *databases) publish(ctx context.Context, c client.Client, database *unstructured.Unstructured, host string) error {
	published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: database.GetNamespace(), Name: database.GetName() + "-database"}}
	_, err := controllerutil.CreateOrUpdate(ctx, c, published, func() error {
		published.Data = map[string]string{"host": host}
		return controllerutil.SetControllerReference(database, published, c.Scheme())
	})
	return err
}

func (d *databases) setStatus(ctx context.Context, c client.Client, database *unstructured.Unstructured, status map[string]any) error {
	if before, _, _ := unstructured.NestedMap(database.Object, "status"); fmt.Sprint(before) == fmt.Sprint(status) {
		return nil // unchanged; a write would trigger another reconciliation
	}
	database.Object["status"] = status
	return c.Status().Update(ctx, database)
}
