package endpoints

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Endpoint is one address in the status of a slice. Slices of all kinds have it.
type Endpoint struct {
	URL string `json:"url"`
	// Shards are those whose consumers shall use the address. It is nil where that follows from the address.
	Shards *Shards `json:"shards,omitempty"`
}

// Shards are all, or those that a selector selects.
type Shards struct {
	MatchAll bool                  `json:"matchAll,omitempty"`
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

var errNoEndpoint = errors.New("no endpoint is for this shard")

// Choose returns the address that consumers on a shard use: of those for certain shards the one that names this shard
// by the most terms; if none is for certain shards, the one that begins with the shard's own address of virtual
// workspaces. It fails if there is none, or more than one.
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
		return "", fmt.Errorf("%d endpoints are for this shard by equally many terms", ties+1)
	}
	return chosen, nil
}

// match tells whether a shard is meant, and by how many terms.
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
