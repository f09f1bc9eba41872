package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"go/build"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const noAssertion = "NOASSERTION"

// billOfMaterials lists the Go modules in each binary of an image, as SPDX. The binaries themselves contain this list.
func (r *release) billOfMaterials(b built) ([]byte, error) {
	digest, err := b.image.Digest()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("atoll-%s-%s-%s", r.version, b.platform.OS, b.platform.Architecture)
	root := newPackage("Image", r.repository, digest.String(), "pkg:oci/atoll@"+digest.String())
	root.PackageLicenseDeclared = ownLicense
	document := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name, DocumentNamespace: source + "/sbom/" + name + "/" + digest.Hex,
		CreationInfo:  &spdx.CreationInfo{Created: r.created.Format("2006-01-02T15:04:05Z"), Creators: []common.Creator{{CreatorType: "Tool", Creator: "atoll-release"}}},
		Packages:      []*spdx.Package{root},
		Relationships: []*spdx.Relationship{relation("DOCUMENT", common.TypeRelationshipDescribe, root.PackageSPDXIdentifier)},
	}
	modules := map[common.ElementID]*spdx.Package{}
	for _, path := range b.binaries {
		if err := r.addBinary(document, modules, root, path); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	root.PackageLicenseConcluded = conclude(maps.Values(modules))
	for _, id := range slices.Sorted(maps.Keys(modules)) {
		document.Packages = append(document.Packages, modules[id])
	}
	var out bytes.Buffer
	if err := spdxjson.Write(document, &out, spdxjson.Indent("  ")); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// addBinary adds a binary of the image, and the modules that it was built from.
func (r *release) addBinary(document *spdx.Document, modules map[common.ElementID]*spdx.Package, root *spdx.Package, path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	sum, err := sumOf(path)
	if err != nil {
		return err
	}
	binary := newPackage("Binary-"+filepath.Base(path), filepath.Base(path), r.version, "")
	binary.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: sum}}
	binary.PackageLicenseDeclared = ownLicense
	document.Packages = append(document.Packages, binary)
	document.Relationships = append(document.Relationships, relation(root.PackageSPDXIdentifier, common.TypeRelationshipContains, binary.PackageSPDXIdentifier))
	var linked []*spdx.Package
	for _, module := range append([]*debug.Module{{Path: "stdlib", Version: info.GoVersion}, &info.Main}, info.Deps...) {
		license, replacement := r.licenses[module.Path].expression, module.Replace
		switch {
		case module == &info.Main, replacement != nil && build.IsLocalImport(replacement.Path): // of this repository
			module, license = &debug.Module{Path: module.Path, Version: r.version}, ownLicense
		case replacement != nil:
			module = replacement
		}
		p := newPackage("Module-"+module.Path+"-"+module.Version, module.Path, module.Version, "pkg:golang/"+module.Path+"@"+module.Version)
		p.PackageLicenseConcluded, p.PackageLicenseDeclared = license, license
		modules[p.PackageSPDXIdentifier] = p
		linked = append(linked, p)
		document.Relationships = append(document.Relationships, relation(binary.PackageSPDXIdentifier, common.TypeRelationshipDependsOn, p.PackageSPDXIdentifier))
	}
	binary.PackageLicenseConcluded = conclude(slices.Values(linked))
	return nil
}

// conclude returns the license of a binary that contains all of these packages: the conjunction of their licenses, because findLicenses
// supports conjunctions only.
func conclude(packages iter.Seq[*spdx.Package]) string {
	var ids []string
	for p := range packages {
		ids = append(ids, strings.Split(p.PackageLicenseDeclared, " AND ")...)
	}
	slices.Sort(ids)
	return strings.Join(slices.Compact(ids), " AND ")
}

var noID = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)

func newPackage(id, name, version, purl string) *spdx.Package {
	p := &spdx.Package{
		PackageSPDXIdentifier: common.ElementID(noID.ReplaceAllString(id, "-")), PackageName: name, PackageVersion: version,
		PackageDownloadLocation: noAssertion, PackageLicenseConcluded: noAssertion, PackageLicenseDeclared: noAssertion, PackageCopyrightText: noAssertion,
	}
	if purl != "" {
		p.PackageExternalReferences = []*spdx.PackageExternalReference{{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: purl}}
	}
	return p
}

func relation(from common.ElementID, kind string, to common.ElementID) *spdx.Relationship {
	return &spdx.Relationship{RefA: common.DocElementID{ElementRefID: from}, RefB: common.DocElementID{ElementRefID: to}, Relationship: kind}
}

// sumOf returns the SHA-256 of a file.
func sumOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}
