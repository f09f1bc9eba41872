package etcdkeys

import (
	"encoding/json"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// sizesPath is where a shard returns how many objects logical clusters have. It is below /debug, which exists for the whole shard only, and
	// for its administrators.
	sizesPath = "/debug/logicalclusters/objects"
	// maxSizes bounds the logical clusters of a request.
	maxSizes = 100
)

// InstallSizes serves the numbers of objects of the logical clusters in the parameters "name", as a JSON object. They are counted in etcd for each
// request, by the keys alone.
func (s *Scanner) InstallSizes(pathMux *mux.PathRecorderMux) {
	pathMux.HandleFunc(sizesPath, func(w http.ResponseWriter, req *http.Request) {
		names := req.URL.Query()["name"]
		if req.Method != http.MethodGet || len(names) == 0 || len(names) > maxSizes {
			http.Error(w, fmt.Sprintf("GET with 1 to %d parameters \"name\" is served, each the name of a logical cluster", maxSizes), http.StatusBadRequest)
			return
		}
		sizes := make(map[string]int64, len(names))
		for _, text := range names {
			name, err := logicalcluster.ParseName(text)
			if err != nil {
				http.Error(w, fmt.Sprintf("name: %q is not the name of a logical cluster", text), http.StatusBadRequest)
				return
			}
			if sizes[text], err = s.Count(req.Context(), name); err != nil {
				klog.FromContext(req.Context()).Error(err, "Failed to count the objects of a logical cluster", "cluster", name)
				http.Error(w, "the objects cannot be counted now", http.StatusServiceUnavailable)
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(sizes) // the client has gone
	})
}
