package instance

import (
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// movedMessage is the status message while another backend takes over.
const movedMessage = "The instance is being set up anew."

// release deletes the objects of an instance, because another backend takes over. The object of the tenant stays. The absence of the
// finalizer means that this backend has no objects for it.
func (p *pass) release() (reconcile.Result, error) {
	if !p.hasFinalizer() {
		return reconcile.Result{}, nil
	}
	status, changed := newStatus(p.instance.Object, State{Phase: infrastructurev1alpha1.PhaseProvisioning, Message: movedMessage}, connectionOf(p.instance.Object), time.Now())
	if changed && p.tell(status) {
		return reconcile.Result{}, nil // the event of this write requeues the instance
	}
	gone, err := p.Handler.Delete(p.ctx, p.instance)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("releasing the instance: %w", err)
	}
	if !gone {
		return reconcile.Result{RequeueAfter: deletionInterval}, nil
	}
	return reconcile.Result{}, p.removeFinalizer()
}

// confirm checks that this backend should still provide an instance after adding the finalizer, and otherwise removes it. The cached
// Template may be older than the decision that another backend takes over, which is made when no instance has the finalizer.
func (p *pass) confirm() error {
	current := &infrastructurev1alpha1.Template{}
	err := p.provider.Get(p.ctx, client.ObjectKeyFromObject(p.instance.Template), current)
	if err == nil && p.isServed(current) && current.Spec.Backend == p.Backend && current.Status.Backend.ReplacedBy == "" {
		return nil
	}
	if written := p.kind.get(p.instance.Cluster.String(), p.instance.Object.GetName()); written != nil {
		p.instance.Object = written
	}
	if removeErr := p.removeFinalizer(); err == nil {
		err = removeErr
	}
	return err
}

func (p *pass) hasFinalizer() bool {
	return slices.Contains(p.instance.Object.GetFinalizers(), Finalizer(p.Group))
}

// removeFinalizer removes the finalizer from an instance whose objects are gone.
func (p *pass) removeFinalizer() error {
	finalizer := Finalizer(p.Group)
	if !p.hasFinalizer() {
		return nil
	}
	return p.setFinalizers(withoutFinalizer(p.instance.Object, finalizer))
}
