package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// content is what is in the file of an instance.
type content struct {
	Spec    map[string]any `json:"spec"`
	Comment string         `json:"comment,omitempty"`
	// Key is the credential of the tenant. It is made once: an instance keeps it when it changes.
	Key string `json:"key"`
}

// file is where an instance is: the logical cluster is the tenant, and names are unique within tenant and Template.
func (f *files) file(inst instance.Instance) string {
	return filepath.Join(f.tenant(inst.Cluster), inst.Template.Name, inst.Object.GetName()+extension)
}

const extension = ".json"

func (f *files) tenant(cluster logicalcluster.Name) string {
	return filepath.Join(f.directory, cluster.String())
}

// Apply writes the file, unless it is right already. An error is repeated; tenants do not see it.
func (f *files) Apply(_ context.Context, inst instance.Instance) (instance.State, error) {
	parsed, err := parse(inst.Template)
	if err != nil {
		return instance.State{}, err
	}
	spec, _, err := unstructured.NestedMap(inst.Object.Object, "spec")
	if err != nil {
		return instance.State{}, err
	}
	current, err := os.ReadFile(f.file(inst))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return instance.State{}, fmt.Errorf("reading the file of an instance: %w", err)
	}
	var former content
	_ = json.Unmarshal(current, &former) // a file that is no longer JSON is written anew
	key := cmp.Or(former.Key, rand.Text())
	wanted, err := json.Marshal(content{spec, parsed.Comment, key})
	if err != nil {
		return instance.State{}, err
	}
	if err := write(f.file(inst), current, wanted); err != nil {
		return instance.State{}, fmt.Errorf("writing the file of an instance: %w", err)
	}
	outputs := map[string]any{"endpoint": inst.Object.GetName() + "." + parsed.Domain}
	for _, name := range parsed.Outputs {
		if value, ok := spec[name]; ok {
			outputs[name] = value
		}
	}
	return instance.State{
		Phase: infrastructurev1alpha1.PhaseReady, Outputs: outputs, Connection: map[string]string{"key": key},
		RecheckAfter: f.recheck, // there are no events about files, so they are read again
	}, nil
}

// write writes a file that differs. It is complete or not there, also if the process is killed.
func write(file string, current, wanted []byte) error {
	if bytes.Equal(current, wanted) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	temporary := file + ".new"
	if err := os.WriteFile(temporary, wanted, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, file)
}

// Delete removes the file. There may be none: it is repeated until it succeeds.
func (f *files) Delete(_ context.Context, inst instance.Instance) (bool, error) {
	for _, name := range []string{f.file(inst) + ".new", f.file(inst)} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return true, nil
}

// Instances are the files: those of instances that are gone are found when the platform compares them with the objects that exist.
func (f *files) Instances(ctx context.Context) ([]instance.Identity, error) {
	tenants, err := f.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	var found []instance.Identity
	for _, tenant := range tenants {
		names, err := filepath.Glob(filepath.Join(f.tenant(tenant), "*", "*"+extension))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			directory, file := filepath.Split(name)
			found = append(found, instance.Identity{Cluster: tenant, Template: filepath.Base(directory), Name: strings.TrimSuffix(file, extension)})
		}
	}
	return found, nil
}

// Tenants are the directories: what the sweep compares with the workspaces that exist.
func (f *files) Tenants(context.Context) ([]logicalcluster.Name, error) {
	entries, err := os.ReadDir(f.directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var tenants []logicalcluster.Name
	for _, entry := range entries {
		if tenant, err := logicalcluster.ParseName(entry.Name()); err == nil {
			tenants = append(tenants, tenant)
		}
	}
	return tenants, nil
}

// Purge removes everything of a workspace that is gone.
func (f *files) Purge(_ context.Context, tenant logicalcluster.Name) error {
	return os.RemoveAll(f.tenant(tenant))
}
