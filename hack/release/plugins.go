package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"
)

// krewDirectory is the directory of krew's manifests, as in an index of krew.
const krewDirectory = "plugins"

// described are the plug-ins' texts for krew, by the names of programs.
var described = map[string]struct{ short, caveats string }{
	"kubectl-ws":  {short: "Move through kcp workspaces, and show them"},
	"kubectl-kcp": {short: "Work with kcp workspaces and the APIs they share"},
	"kubectl-create-workspace": {short: "Create a kcp workspace", caveats: `krew's name of the program makes it "kubectl create-workspace". For "kubectl create workspace":
  cd "${KREW_ROOT:-$HOME/.krew}/bin" && ln -s kubectl-create_workspace kubectl-create-workspace
`},
}

// writePlugins writes an archive of the plug-ins for each platform, and krew's manifest of each plug-in. It returns the names.
func (r *release) writePlugins() ([]string, error) {
	var files []string
	sums := map[string]string{}
	for _, platform := range r.platforms {
		var plugins []entry
		for _, path := range r.paths(platform, r.plugins) {
			plugins = append(plugins, entry{name: filepath.Base(path), mode: 0o755, path: path})
		}
		plugins = append(plugins, entry{name: "LICENSE", mode: 0o644, path: filepath.Join(r.root, "LICENSE")}, entry{name: "licenses.txt", mode: 0o644, content: notices(r.licenses)})
		name := r.archiveOf(platform)
		path := filepath.Join(r.out, name)
		if err := writeArchive(path, r.created, plugins); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		sum, err := sumOf(path)
		if err != nil {
			return nil, err
		}
		sums[platform.String()] = sum
		files = append(files, name)
		r.progress("%s", name)
	}
	if err := os.MkdirAll(filepath.Join(r.out, krewDirectory), 0o755); err != nil {
		return nil, err
	}
	for _, program := range r.plugins {
		name := krewDirectory + "/" + strings.TrimPrefix(program, "kubectl-") + ".yaml"
		manifest, err := r.krewManifest(program, sums)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(r.out, name), manifest, 0o644); err != nil {
			return nil, err
		}
		files = append(files, name)
		r.progress("%s", name)
	}
	return files, nil
}

// archiveOf returns the name of the archive of plug-ins for a platform.
func (r *release) archiveOf(platform v1.Platform) string {
	return fmt.Sprintf("kubectl-plugins-%s-%s-%s.tar.gz", r.version, platform.OS, platform.Architecture)
}

// krewManifest describes a plug-in for krew. The module of krew is not a dependency, because it would require old versions of Kubernetes'
// libraries.
func (r *release) krewManifest(program string, sums map[string]string) ([]byte, error) {
	texts, found := described[program]
	if !found {
		return nil, fmt.Errorf("plug-in %s has no description for krew", program)
	}
	type object = map[string]any
	var supported []object
	for _, platform := range r.platforms {
		binary := filepath.Base(r.paths(platform, []string{program})[0])
		files := []object{{"from": binary, "to": "."}, {"from": "LICENSE", "to": "."}, {"from": "licenses.txt", "to": "."}}
		supported = append(supported, object{
			"selector": object{"matchLabels": object{"os": platform.OS, "arch": platform.Architecture}},
			"uri":      r.url + "/" + r.archiveOf(platform), "sha256": sums[platform.String()], "files": files, "bin": binary,
		})
	}
	spec := object{
		"version": r.version, "homepage": source, "shortDescription": texts.short, "platforms": supported,
		"description": texts.short + ". Of Atoll, for installations of Atoll and of kcp.",
	}
	if texts.caveats != "" {
		spec["caveats"] = texts.caveats
	}
	return yaml.Marshal(object{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin",
		"metadata": object{"name": strings.TrimPrefix(program, "kubectl-")}, "spec": spec,
	})
}
