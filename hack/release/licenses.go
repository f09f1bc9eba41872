package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// ownLicense is that of this repository.
const ownLicense = "Apache-2.0"

// redistributable are the licenses, by their SPDX identifiers, that binaries may be passed on under.
var redistributable = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MPL-2.0", "Unicode-DFS-2016", "Unlicense", "Zlib"}

// licenseFile matches names of files with a license, but of documentation.
var licenseFile = regexp.MustCompile(`(?i)^(un)?(licen[sc]e|copying)([.-](md|txt|code|mit|apache|apache2|bsd|isc))?$`)

// licenses are those of modules, by path.
type licenses map[string]string

// findLicenses returns the licenses of modules of the repository. It fails for a module that has none, or one that does not permit to
// pass on what is linked of it.
func findLicenses(root string, modules []string) (licenses, error) {
	found := licenses{"stdlib": "BSD-3-Clause"} // sources of Go are not always where its compiler is
	if len(modules) == 0 {
		return found, nil
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", append([]string{"list", "-m", "-json"}, modules...)...)
	var problems bytes.Buffer
	cmd.Dir, cmd.Stderr = root, &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("finding the sources of modules: %w\n%s", err, problems.Bytes())
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var module struct{ Path, Dir string }
		if err := decoder.Decode(&module); err == io.EOF {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		directory := module.Dir
		if relative, err := filepath.Rel(root, directory); err == nil && !strings.HasPrefix(relative, "..") {
			directory = root // a module of this repository, which has one license
		}
		expression, err := detectLicense(directory)
		if err != nil {
			return nil, fmt.Errorf("license of module %s: %w", module.Path, err)
		}
		found[module.Path] = expression
	}
}

// detectLicense returns the SPDX expression of the licenses in the files of a directory.
func detectLicense(directory string) (string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, entry := range entries {
		if !licenseFile.MatchString(entry.Name()) || !entry.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err != nil {
			return "", err
		}
		for _, match := range licensecheck.Scan(text).Match {
			if !match.IsURL { // an address in the text is no license
				ids = append(ids, match.ID)
			}
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return "", fmt.Errorf("none found in %s", directory)
	}
	for _, id := range ids {
		if !slices.Contains(redistributable, id) {
			return "", fmt.Errorf("%s is not in the list of those that permit redistribution", id)
		}
	}
	return strings.Join(ids, " AND "), nil
}
