package options

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
)

// podSecurityLevels are the levels of the Pod Security Standards; empty leaves the level to the cluster.
var podSecurityLevels = []string{"", "privileged", "baseline", "restricted"}

// Tenants configures the namespaces of tenants in the runtime cluster. Lists of resources have the form cpu=100m,memory=1Gi.
type Tenants struct {
	PodSecurity                    string
	Requests, Limits, Quota        string
	NetworkIsolation, NoConnecting bool
	AllowedFrom                    []string
}

func newTenants() Tenants {
	return Tenants{PodSecurity: "baseline", Requests: "cpu=50m,memory=64Mi", Limits: "memory=512Mi", NetworkIsolation: true}
}

func (t *Tenants) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&t.PodSecurity, "tenant-pod-security", t.PodSecurity, "level of pod security of namespaces of tenants: privileged, baseline or restricted; empty for that of the runtime cluster")
	flags.StringVar(&t.Requests, "tenant-default-requests", t.Requests, "requests of containers of instances that have none; empty for none")
	flags.StringVar(&t.Limits, "tenant-default-limits", t.Limits, "limits of containers of instances that have none; empty for none")
	flags.StringVar(&t.Quota, "tenant-quota", t.Quota, "quota of each tenant in the runtime cluster, such as requests.cpu=4,pods=20; by default none")
	flags.BoolVar(&t.NetworkIsolation, "tenant-network-isolation", t.NetworkIsolation, "whether pods of a tenant accept connections only from pods of the same tenant")
	flags.StringSliceVar(&t.AllowedFrom, "tenant-network-allow-from", t.AllowedFrom, "namespaces, such as that of an ingress controller, whose pods may connect to those of tenants nevertheless")
	flags.BoolVar(&t.NoConnecting, "tenant-restrict-egress", t.NoConnecting, "whether pods of a tenant may connect only to pods of the same tenant, and to port 53")
}

// complete validates the flags.
func (t *Tenants) complete() (runtimecluster.Defaults, error) {
	defaults := runtimecluster.Defaults{PodSecurity: t.PodSecurity, Isolated: t.NetworkIsolation, AllowedFrom: t.AllowedFrom, RestrictEgress: t.NoConnecting}
	if !slices.Contains(podSecurityLevels, t.PodSecurity) {
		return defaults, fmt.Errorf("--tenant-pod-security: got %q, expected privileged, baseline, restricted or nothing", t.PodSecurity)
	}
	for _, namespace := range t.AllowedFrom {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			return defaults, fmt.Errorf("--tenant-network-allow-from: got %q, expected the name of a namespace: %s", namespace, strings.Join(problems, "; "))
		}
	}
	for _, list := range []struct {
		flag, text string
		result     *corev1.ResourceList
	}{
		{"--tenant-default-requests", t.Requests, &defaults.Requests},
		{"--tenant-default-limits", t.Limits, &defaults.Limits},
		{"--tenant-quota", t.Quota, &defaults.Quota},
	} {
		parsed, err := parseResources(list.text)
		if err != nil {
			return defaults, fmt.Errorf("%s: %w", list.flag, err)
		}
		*list.result = parsed
	}
	return defaults, nil
}

func parseResources(text string) (corev1.ResourceList, error) {
	if text == "" {
		return nil, nil
	}
	list := corev1.ResourceList{}
	for part := range strings.SplitSeq(text, ",") {
		name, amount, _ := strings.Cut(part, "=")
		quantity, err := resource.ParseQuantity(amount)
		if name == "" || err != nil {
			return nil, fmt.Errorf("got %q, expected resources such as cpu=100m,memory=1Gi", text)
		}
		list[corev1.ResourceName(name)] = quantity
	}
	return list, nil
}
