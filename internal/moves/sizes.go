package moves

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// MaxSizes is the number of logical clusters whose objects a shard counts in a request.
const MaxSizes = 100

// maxSizesBytes bounds the answer of a shard.
const maxSizesBytes = 1 << 16

// Sizes asks a shard how many objects logical clusters have, which needs system:masters of that shard.
func Sizes(ctx context.Context, client *http.Client, host string, names []logicalcluster.Name) (map[string]int64, error) {
	query := url.Values{}
	for _, name := range names {
		query.Add("name", name.String())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(host, "/")+"/debug/logicalclusters/objects?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("counting the objects of logical clusters: %w", err)
	}
	defer response.Body.Close()
	sizes := map[string]int64{}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("counting the objects of logical clusters: the shard answers %s", response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxSizesBytes)).Decode(&sizes); err != nil {
		return nil, fmt.Errorf("counting the objects of logical clusters: %w", err)
	}
	return sizes, nil
}
