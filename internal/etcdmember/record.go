package etcdmember

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Keys of a Record: in the ConfigMap in which the operator stores it, and of the files that a member reads.
const (
	keyClusterID = "cluster-id"
	keyToken     = "token"
	keyEndpoints = "endpoints"
)

// Record is the operator's record of the bootstrap of a cluster, which members read.
type Record struct {
	// ClusterID is the ID of the cluster as etcd prints it, in hexadecimal. It is set after the cluster is bootstrapped.
	ClusterID string
	// Token is the token of the bootstrap. It is empty for a cluster that is older than the record.
	Token string
	// Endpoints are the client URLs of all members.
	Endpoints []string
}

// Data returns the record as the data of a ConfigMap.
func (r Record) Data() map[string]string {
	return map[string]string{keyClusterID: r.ClusterID, keyToken: r.Token, keyEndpoints: strings.Join(r.Endpoints, ",")}
}

// RecordFrom is the inverse of Data.
func RecordFrom(data map[string]string) Record {
	record := Record{ClusterID: strings.TrimSpace(data[keyClusterID]), Token: strings.TrimSpace(data[keyToken])}
	if endpoints := strings.TrimSpace(data[keyEndpoints]); endpoints != "" {
		record.Endpoints = strings.Split(endpoints, ",")
	}
	return record
}

// readRecord reads the record from a directory where the ConfigMap is mounted.
func readRecord(directory string) (Record, error) {
	data := map[string]string{}
	for _, key := range []string{keyClusterID, keyToken, keyEndpoints} {
		content, err := os.ReadFile(filepath.Join(directory, key))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Record{}, fmt.Errorf("reading the record of the cluster: %w", err)
		}
		data[key] = string(content)
	}
	return RecordFrom(data), nil
}
