package endpoints

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Endpoint is one address in the status of a slice of any kind.
type Endpoint struct {
	URL string `json:"url"`
	// Shards selects the shards whose consumers use the address. If it is nil, the address determines them.
	Shards *Shards `json:"shards,omitempty"`
}

// Shards are all shards, or those that a selector matches.
type Shards struct {
	MatchAll bool                  `json:"matchAll,omitempty"`
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

var errNoEndpoint = errors.New("no endpoint matches this shard")

// Choose returns the address that consumers on a shard use. Of the addresses with a selector it returns the one that
// matches the labels of the shard with the most terms. If none has a selector, it returns the one that begins with the
// shard's own address of virtual workspaces. It returns an error if there is none, or more than one.
func Choose(endpoints []Endpoint, shardLabels map[string]string, shardURL string) (string, error) {
	chosen, most, ties, selective := "", -1, 0, false
	for _, endpoint := range endpoints {
		if endpoint.Shards == nil {
			continue
		}
		selective = true
		terms, matches, err := endpoint.Shards.match(shardLabels)
		switch {
		case err != nil:
			return "", fmt.Errorf("endpoint %s: %w", endpoint.URL, err)
		case !matches || terms < most:
		case terms == most:
			ties++
		default:
			chosen, most, ties = endpoint.URL, terms, 0
		}
	}
	if !selective {
		return chooseByAddress(endpoints, shardURL)
	}
	if chosen == "" {
		return "", errNoEndpoint
	}
	if ties > 0 {
		return "", fmt.Errorf("%d endpoints match this shard with the same number of terms", ties+1)
	}
	return chosen, nil
}

// match reports whether the shard matches, and by how many terms.
func (s *Shards) match(shardLabels map[string]string) (terms int, matches bool, err error) {
	if s.MatchAll || s.Selector == nil {
		return 0, s.MatchAll, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s.Selector)
	if err != nil {
		return 0, false, err
	}
	return len(s.Selector.MatchLabels) + len(s.Selector.MatchExpressions), selector.Matches(labels.Set(shardLabels)), nil
}

func chooseByAddress(endpoints []Endpoint, shardURL string) (string, error) {
	prefix := strings.TrimSuffix(shardURL, "/") + "/"
	chosen := ""
	for _, endpoint := range endpoints {
		if !strings.HasPrefix(endpoint.URL, prefix) {
			continue
		}
		if chosen != "" {
			return "", errors.New("more than one endpoint has the address of this shard")
		}
		chosen = endpoint.URL
	}
	if chosen == "" {
		return "", errNoEndpoint
	}
	return chosen, nil
}
