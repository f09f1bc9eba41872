package rekey

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// FromStatus reads the record in the status of a RootShard.
func FromStatus(status *operatorv1alpha1.CertificateAuthorityStatus) State {
	out := State{Phase: status.Phase, Generation: status.Generation, Next: status.NextGeneration}
	if status.ReadySince != nil {
		out.ReadySince = status.ReadySince.Time
	}
	return out
}

// ToStatus writes the record; the other fields of the status remain.
func (s State) ToStatus(status *operatorv1alpha1.CertificateAuthorityStatus) {
	status.Phase, status.Generation, status.NextGeneration, status.ReadySince = s.Phase, s.Generation, s.Next, nil
	if !s.ReadySince.IsZero() {
		status.ReadySince = &metav1.Time{Time: s.ReadySince}
	}
}
