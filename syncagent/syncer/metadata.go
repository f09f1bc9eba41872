package syncer

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// metadata are labels and annotations.
type metadata struct {
	labels, annotations map[string]string
}

// isSyncableLabel reports whether a label is part of an object's content. Labels of the agent never are, no matter which user has set
// them: on a copy they would name a source.
func isSyncableLabel(key string) bool {
	return !isOfAgent(key) && !strings.HasPrefix(key, apisv1alpha2.ClaimedLabelKeyPrefix)
}

func isSyncableAnnotation(key string) bool {
	return !isOfAgent(key) && key != logicalcluster.AnnotationKey && key != corev1.LastAppliedConfigAnnotation
}

// isOfAgent reports whether a key belongs to the agent's domain or a subdomain of it.
func isOfAgent(key string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	return qualified && (domain == syncagentv1alpha1.GroupName || strings.HasSuffix(domain, "."+syncagentv1alpha1.GroupName))
}

// missing returns the labels and annotations of m that the given ones do not contain.
func (m metadata) missing(labels, annotations map[string]string) metadata {
	return metadata{notIn(m.labels, labels), notIn(m.annotations, annotations)}
}

func (m metadata) empty() bool { return len(m.labels) == 0 && len(m.annotations) == 0 }

func notIn(wanted, existing map[string]string) map[string]string {
	missing := maps.Clone(wanted)
	maps.DeleteFunc(missing, func(key, value string) bool {
		have, found := existing[key]
		return found && have == value
	})
	return missing
}

// merged returns the union of both, or nil if it is empty; values of the second map take precedence.
func merged(values, others map[string]string) map[string]string {
	if len(values)+len(others) == 0 {
		return nil
	}
	result := map[string]string{}
	maps.Copy(result, values)
	maps.Copy(result, others)
	return result
}
