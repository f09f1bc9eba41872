package desired

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// service renders the Service of a component. It does not set node ports, so that allocated ones remain.
func (c component) service(template *operatorv1alpha1.ServiceTemplate, ports ...corev1.ServicePort) *corev1.Service {
	out := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: c.meta(c.Server()),
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: c.Labels(), Ports: ports},
	}
	if template != nil {
		out.ObjectMeta = withTemplateMetadata(out.ObjectMeta, template.Metadata)
		if template.Spec != nil {
			if template.Spec.Type != "" {
				out.Spec.Type = template.Spec.Type
			}
			out.Spec.ClusterIP = template.Spec.ClusterIP
		}
	}
	return out
}

func httpsPort(name string, port, target int32) corev1.ServicePort {
	return corev1.ServicePort{
		Name: name, Port: port, TargetPort: intstr.FromInt32(target), Protocol: corev1.ProtocolTCP, AppProtocol: ptr.To("https"),
	}
}
