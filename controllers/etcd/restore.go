package etcd

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/atoll-dev/atoll/controllers/desired"
)

// DataMount is where members, and what fills their volumes, mount them. DataDirectory is the data directory of a member: the root of a volume may
// hold lost+found, which etcd rejects.
const (
	DataMount     = "/var/lib/etcd"
	DataDirectory = DataMount + "/member-data"
)

// Volume is the volume of a member that has not started.
type Volume struct {
	Member, PeerURL string
	// Claim is that which the StatefulSet would create, and uses if it exists.
	Claim *corev1.PersistentVolumeClaim
}

// Volumes are those of all members, by ordinal; none on an emptyDir.
func (c Cluster) Volumes() []Volume {
	set := c.StatefulSet(desired.Image{})
	template := dataClaim(set)
	if template == nil {
		return nil
	}
	var out []Volume
	for i, name := range c.ClaimNames() {
		labels := maps.Clone(set.Spec.Selector.MatchLabels)
		maps.Copy(labels, template.Labels)
		out = append(out, Volume{Member: c.memberName(int32(i)), PeerURL: c.peerURL(int32(i)), Claim: &corev1.PersistentVolumeClaim{
			TypeMeta: template.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.owner.Namespace, Labels: labels}, Spec: *template.Spec.DeepCopy(),
		}})
	}
	return out
}

func (c Cluster) peerURL(i int32) string {
	return fmt.Sprintf("https://%s:%d", c.memberHost(i), peerPort)
}

// InitialCluster is the list of members with which a cluster is bootstrapped, or restored.
func (c Cluster) InitialCluster() string {
	var members []string
	for i := range c.members {
		members = append(members, c.memberName(i)+"="+c.peerURL(i))
	}
	return strings.Join(members, ",")
}
