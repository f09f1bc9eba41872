package metrics

import (
	"context"
	"strconv"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// collectCertificates exports when the Certificates of the operator expire, and when they are renewed, as cert-manager says. It leaves out
// those of users, whose validity the operator does not choose. It needs no Secrets, which the operator does not cache.
func (o *Objects) collectCertificates(ctx context.Context, out chan<- prometheus.Metric) error {
	list := &certmanagerv1.CertificateList{}
	if err := o.reader.List(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		certificate := &list.Items[i]
		if !isOfOperator(certificate) {
			continue
		}
		export := func(description *prometheus.Desc, at *metav1.Time) {
			if at != nil {
				out <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, float64(at.Unix()),
					certificate.Namespace, certificate.Name, strconv.FormatBool(certificate.Spec.IsCA))
			}
		}
		export(o.expiry, certificate.Status.NotAfter)
		export(o.renewal, certificate.Status.RenewalTime)
	}
	return nil
}

func isOfOperator(certificate *certmanagerv1.Certificate) bool {
	owner := metav1.GetControllerOf(certificate)
	if owner == nil {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == operatorv1alpha1.SchemeGroupVersion.Group
}
