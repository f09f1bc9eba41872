package doctor

import (
	"context"
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// hostResources are the kinds of the operator whose state is their condition Ready. A Backup is not among them: a failed one stays.
var hostResources = []string{"rootshards", "shards", "frontproxies", "cacheservers", "virtualworkspaces", "kubeconfigs", "backupstores", "backupschedules", "restoredrills"}

var (
	leasesResource       = coordinationv1.SchemeGroupVersion.WithResource("leases")
	backupsResource      = operatorv1alpha1.SchemeGroupVersion.WithResource("backups")
	certificatesResource = schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}
)

// readHost reads the objects of the operator, and the Certificates in the namespaces of installations. It reads no Secrets.
func (g *gatherer) readHost(ctx context.Context) {
	client, err := newDynamic(g.host)
	if err != nil {
		g.skip(AreaHost, "the host cluster cannot be read", err)
		return
	}
	g.progress("Reading the host cluster")
	namespaces := map[string]bool{}
	for _, name := range hostResources {
		err := each(ctx, client.Resource(operatorv1alpha1.SchemeGroupVersion.WithResource(name)).Namespace(g.hostNamespace), "", func(object *unstructured.Unstructured) error {
			namespaces[object.GetNamespace()] = true
			decoded, err := hostObjectOf(object)
			g.record(func(f *Facts) { f.Objects = append(f.Objects, decoded) })
			return err
		})
		switch {
		case err == nil:
		case name == hostResources[0] && apierrors.IsNotFound(err):
			g.skip(AreaHost, "the host cluster has no RootShards of operator.kcp.io: is it the right one?", nil)
			return
		case name == hostResources[0]:
			g.skip(AreaHost, "the RootShards of the host cluster cannot be read", err)
			return
		default:
			g.miss(AreaHost, Unread{What: "the " + name + " of the host cluster", Reason: err.Error()})
		}
	}
	err = each(ctx, client.Resource(backupsResource).Namespace(g.hostNamespace), "", func(object *unstructured.Unstructured) error {
		decoded, err := backupOf(object)
		g.record(func(f *Facts) { f.Backups = append(f.Backups, decoded) })
		return err
	})
	if err != nil {
		g.miss(AreaHost, Unread{What: "the backups of the host cluster", Reason: err.Error()})
	}
	g.readLeases(ctx, client)
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		err := each(ctx, client.Resource(certificatesResource).Namespace(namespace), "", func(object *unstructured.Unstructured) error {
			decoded, err := hostCertificateOf(object)
			g.record(func(f *Facts) { f.Certificates = append(f.Certificates, decoded) })
			return err
		})
		if err != nil {
			g.miss(AreaHost, Unread{What: "the certificates in namespace " + namespace + " of the host cluster", Reason: err.Error()})
		}
	}
}

// readLeases reads the Leases of operators, whose namespace is not that of their objects.
func (g *gatherer) readLeases(ctx context.Context, client dynamic.Interface) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := client.Resource(leasesResource).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + operatorv1alpha1.LeaseName})
	if err != nil {
		g.miss(AreaHost, Unread{What: "the lease of the operator in the host cluster", Reason: err.Error()})
		return
	}
	for _, object := range list.Items {
		lease, held, err := leaseOf(&object)
		if err != nil {
			g.miss(AreaHost, Unread{What: "the lease of the operator in namespace " + object.GetNamespace(), Reason: err.Error()})
			continue
		}
		if held {
			g.record(func(f *Facts) { f.Leases = append(f.Leases, lease) })
		}
	}
}
