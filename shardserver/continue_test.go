package shardserver_test

import (
	"encoding/base64"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestForgedContinueTokens: continue tokens are plain text and can be forged. For any modified token, a client
// receives its own objects or an error.
func TestForgedContinueTokens(t *testing.T) {
	p := newWorkspacePair(t)
	page := func(limit int64, token string) ([]string, string, error) {
		list, err := p.a.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: limit, Continue: token, LabelSelector: "of=pair"})
		if err != nil {
			return nil, "", err
		}
		var clusters []string
		for _, item := range list.Items {
			clusters = append(clusters, item.Annotations["kcp.io/cluster"])
		}
		return clusters, list.Continue, nil
	}
	ofB, err := p.b.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 2})
	if err != nil || ofB.Continue == "" {
		t.Fatalf("no token of b: %v", err)
	}
	forged := func(start string) string {
		return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":%s,"start":%q}`, ofB.ResourceVersion, start))
	}
	for name, token := range map[string]string{
		"a token of b":                          ofB.Continue,
		"a sibling of the key range":            forged("../" + p.clusterB + "/same/cm-0"),
		"a sibling of the key range, absolute":  forged("/../" + p.clusterB + "/same/cm-0"),
		"a key that contains the other cluster": forged(p.clusterB + "/same/cm-0"),
		"the lowest key":                        forged("\x00"),
		"the highest key":                       forged("~"),
		"the full key of an object":             forged("/registry/core/configmaps/" + p.clusterB + "/same/cm-0"),
		"a token for a range of another depth":  forged("same/../../" + p.clusterB + "/same/cm-0"),
		"not a token":                           "bm90IGEgdG9rZW4",
	} {
		t.Run(name, func(t *testing.T) {
			for _, limit := range []int64{0, 1, 2, 100} {
				clusters, next, err := page(limit, token)
				for pages := 0; err == nil && next != "" && pages < 100; pages++ {
					var more []string
					more, next, err = page(max(limit, 1), next)
					clusters = append(clusters, more...)
				}
				if err != nil && !apierrors.IsBadRequest(err) && !apierrors.IsResourceExpired(err) {
					t.Errorf("limit %d: %v", limit, err)
				}
				for _, cluster := range clusters {
					if cluster != p.clusterA {
						t.Errorf("limit %d: got an object of %s", limit, cluster)
					}
				}
				if len(clusters) > objectsPerWorkspace {
					t.Errorf("limit %d: got %d objects, want %d", limit, len(clusters), objectsPerWorkspace)
				}
			}
		})
	}
}
