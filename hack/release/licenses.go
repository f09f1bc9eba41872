package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// ownLicense is the license of this repository.
const ownLicense = "Apache-2.0"

// redistributable are the licenses, by their SPDX identifiers, under which binaries may be distributed.
var redistributable = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MPL-2.0", "Unicode-DFS-2016", "Unlicense", "Zlib"}

// licenseFile matches names of files with a license, except for documentation; noticeFile matches files that must be distributed with it.
var (
	licenseFile = regexp.MustCompile(`(?i)^(un)?(licen[sc]e|copying)([.-](md|txt|code|mit|apache|apache2|bsd|isc))?$`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|patents)([.-](md|txt))?$`)
)

// license is the license of a module.
type license struct {
	// expression contains the SPDX identifiers, texts the files that must be distributed.
	expression string
	texts      []string
}

// findLicenses returns the licenses of the modules of the repository, and that of the standard library, by path. It returns an error for
// a module without a license, or with one that does not permit the distribution of binaries.
func findLicenses(root string, modules []string) (map[string]license, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	directories, err := findDirectories(root, modules)
	if err != nil {
		return nil, err
	}
	found := map[string]license{}
	for path, directory := range directories {
		if relative, err := filepath.Rel(root, directory); err == nil && !strings.HasPrefix(relative, "..") {
			directory = root // a module of this repository, which has one license
		}
		if found[path], err = readLicense(directory); err != nil {
			return nil, fmt.Errorf("license of module %s: %w", path, err)
		}
	}
	return found, nil
}

// findDirectories returns the directories of the sources of modules and of the standard library.
func findDirectories(root string, modules []string) (map[string]string, error) {
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command("go", args...)
		var problems bytes.Buffer
		cmd.Dir, cmd.Stderr = root, &problems
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go %s %s: %w\n%s", args[0], args[1], err, problems.Bytes())
		}
		return out, nil
	}
	goroot, err := run("env", "GOROOT")
	if err != nil {
		return nil, err
	}
	directories := map[string]string{"stdlib": strings.TrimSpace(string(goroot))}
	if len(modules) == 0 {
		return directories, nil
	}
	list, err := run(append([]string{"list", "-m", "-json"}, modules...)...)
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(list)); ; {
		var module struct{ Path, Dir string }
		if err := decoder.Decode(&module); err == io.EOF {
			return directories, nil
		} else if err != nil {
			return nil, err
		}
		directories[module.Path] = module.Dir
	}
}

// readLicense reads the licenses in the files of a directory.
func readLicense(directory string) (license, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return license{}, err
	}
	var found license
	var ids []string
	for _, entry := range entries {
		isLicense := licenseFile.MatchString(entry.Name())
		if !entry.Type().IsRegular() || !isLicense && !noticeFile.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err != nil {
			return license{}, err
		}
		found.texts = append(found.texts, string(text))
		for _, match := range licensecheck.Scan(text).Match {
			if isLicense && !match.IsURL { // a URL in the text is not a license
				ids = append(ids, match.ID)
			}
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return license{}, fmt.Errorf("none found in %s", directory)
	}
	for _, id := range ids {
		if !slices.Contains(redistributable, id) {
			return license{}, fmt.Errorf("%s is not in the list of those that permit redistribution", id)
		}
	}
	found.expression = strings.Join(ids, " AND ")
	return found, nil
}

// notices returns the texts of all licenses, each once, with the modules that have it.
func notices(licenses map[string]license) []byte {
	var texts []string
	modules := map[string][]string{}
	for _, path := range slices.Sorted(maps.Keys(licenses)) {
		for _, text := range licenses[path].texts {
			if modules[text] == nil {
				texts = append(texts, text)
			}
			modules[text] = append(modules[text], path)
		}
	}
	var out bytes.Buffer
	for _, text := range texts {
		fmt.Fprintf(&out, "%s\n\n%s\n\n%s\n\n", strings.Repeat("=", 80), strings.Join(modules[text], "\n"), strings.TrimSpace(text))
	}
	return out.Bytes()
}
