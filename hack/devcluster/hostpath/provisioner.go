package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// provisionerName is the provisioner in the storage class.
	provisionerName = "devcluster.atoll.dev/hostpath"
	// provisionedByAnnotation marks volumes of this provisioner; the stock volume controller then leaves their deletion
	// to it.
	provisionedByAnnotation = "pv.kubernetes.io/provisioned-by"
	// storageProvisionerAnnotation is set by the volume controller on a claim that waits for a provisioner.
	storageProvisionerAnnotation = "volume.kubernetes.io/storage-provisioner"
)

// provisioner has one queue, whose keys are claims ("namespace/name") and volumes ("name").
type provisioner struct {
	client  kubernetes.Interface
	dir     string
	factory informers.SharedInformerFactory
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

func newProvisioner(client kubernetes.Interface, dir string) *provisioner {
	factory := informers.NewSharedInformerFactory(client, 10*time.Minute)
	return &provisioner{
		client:  client,
		dir:     dir,
		factory: factory,
		claims:  factory.Core().V1().PersistentVolumeClaims().Lister(),
		volumes: factory.Core().V1().PersistentVolumes().Lister(),
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
	}
}

// Run serves until the context ends.
func (p *provisioner) Run(ctx context.Context) error {
	core := p.factory.Core().V1()
	for _, informer := range []cache.SharedIndexInformer{core.PersistentVolumeClaims().Informer(), core.PersistentVolumes().Informer()} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    p.enqueue,
			UpdateFunc: func(_, object any) { p.enqueue(object) },
		}); err != nil {
			return fmt.Errorf("watching volumes: %w", err)
		}
	}
	p.factory.Start(ctx.Done())
	for kind, synced := range p.factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("reading %s: %w", kind, context.Cause(ctx))
		}
	}
	defer p.factory.Shutdown()
	context.AfterFunc(ctx, p.queue.ShutDown)
	for p.processNextItem(ctx) {
	}
	return nil
}

func (p *provisioner) enqueue(object any) {
	if o, ok := object.(metav1.Object); ok {
		p.queue.Add(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()})
	}
}

func (p *provisioner) processNextItem(ctx context.Context) bool {
	key, shutdown := p.queue.Get()
	if shutdown {
		return false
	}
	defer p.queue.Done(key)
	reconcile := p.ensureVolume
	if key.Namespace == "" {
		reconcile = p.deleteVolume
	}
	if err := reconcile(ctx, key); err != nil && !apierrors.IsNotFound(err) {
		klog.ErrorS(err, "Failed to reconcile, will retry", "key", key)
		p.queue.AddRateLimited(key)
		return true
	}
	p.queue.Forget(key)
	return true
}

// ensureVolume creates a directory and a volume for a pending claim of this provisioner. The volume is bound to the
// claim from the start.
func (p *provisioner) ensureVolume(ctx context.Context, key types.NamespacedName) error {
	claim, err := p.claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
	if err != nil {
		return err
	}
	if claim.Annotations[storageProvisionerAnnotation] != provisionerName || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
		return nil
	}
	volume := newVolume(claim, p.dir)
	path := volume.Spec.HostPath.Path
	if err := os.MkdirAll(path, 0o777); err != nil {
		return fmt.Errorf("making the folder of claim %s: %w", key, err)
	}
	// Independent of the umask: pods run as any user, and fsGroup skips host paths.
	if err := os.Chmod(path, 0o777); err != nil {
		return fmt.Errorf("opening the folder of claim %s: %w", key, err)
	}
	if _, err := p.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating volume %s for claim %s: %w", volume.Name, key, err)
	}
	return nil
}

// deleteVolume removes a volume of this provisioner whose claim is deleted, and its directory first.
func (p *provisioner) deleteVolume(ctx context.Context, key types.NamespacedName) error {
	volume, err := p.volumes.Get(key.Name)
	if err != nil {
		return err
	}
	if volume.Annotations[provisionedByAnnotation] != provisionerName || volume.Status.Phase != corev1.VolumeReleased ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	if filepath.Dir(volume.Spec.HostPath.Path) != filepath.Clean(p.dir) {
		return fmt.Errorf("volume %s names folder %s, which is not below %s", volume.Name, volume.Spec.HostPath.Path, p.dir)
	}
	if err := os.RemoveAll(volume.Spec.HostPath.Path); err != nil {
		return fmt.Errorf("removing the folder of volume %s: %w", volume.Name, err)
	}
	if err := p.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("removing volume %s: %w", volume.Name, err)
	}
	return nil
}

// newVolume returns the volume of a claim, named after its UID: a claim that is created again gets a new directory.
func newVolume(claim *corev1.PersistentVolumeClaim, dir string) *corev1.PersistentVolume {
	name := "pvc-" + string(claim.UID)
	kind := corev1.HostPathDirectoryOrCreate
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedByAnnotation: provisionerName}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			VolumeMode:                    claim.Spec.VolumeMode,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(dir, name), Type: &kind},
			},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	}
	if claim.Spec.StorageClassName != nil {
		volume.Spec.StorageClassName = *claim.Spec.StorageClassName
	}
	return volume
}
