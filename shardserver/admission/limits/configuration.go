package limits

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	quotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	quotavalidation "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota/validation"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver"
	apiserverinstall "k8s.io/apiserver/pkg/apis/apiserver/install"
)

// ResourceQuotaName is the plug-in that has a configuration.
const ResourceQuotaName = "KCPKubeResourceQuota"

// ReadLimitedResources reads a file of kind AdmissionConfiguration (apiserver.config.k8s.io/v1) and returns the
// resources that need a quota: the limitedResources of upstream's ResourceQuotaConfiguration, which the entry of the
// quota plug-in contains inline or as a path relative to the file. Entries of other plug-ins are errors, because those
// have no configuration.
func ReadLimitedResources(file string) ([]quotaapi.LimitedResource, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	apiserverinstall.Install(scheme)
	decoded, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	configuration, ok := decoded.(*apiserver.AdmissionConfiguration)
	if !ok {
		return nil, fmt.Errorf("%s: got a %T, want an AdmissionConfiguration", file, decoded)
	}
	var limited []quotaapi.LimitedResource
	for _, entry := range configuration.Plugins {
		if entry.Name != ResourceQuotaName {
			return nil, fmt.Errorf("%s: plug-in %q takes no configuration, only %q does", file, entry.Name, ResourceQuotaName)
		}
		if limited, err = readQuotaConfiguration(entry, filepath.Dir(file)); err != nil {
			return nil, fmt.Errorf("%s: plug-in %q: %w", file, entry.Name, err)
		}
	}
	return limited, nil
}

func readQuotaConfiguration(entry apiserver.AdmissionPluginConfiguration, directory string) ([]quotaapi.LimitedResource, error) {
	var raw []byte
	switch {
	case entry.Configuration != nil:
		raw = entry.Configuration.Raw
	case entry.Path != "":
		path := entry.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(directory, path)
		}
		var err error
		if raw, err = os.ReadFile(path); err != nil {
			return nil, err
		}
	default:
		return nil, nil
	}
	configuration, err := resourcequota.LoadConfiguration(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	if errs := quotavalidation.ValidateConfiguration(configuration); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	for _, resource := range configuration.LimitedResources {
		if len(resource.MatchScopes) > 0 {
			return nil, fmt.Errorf("resource %q: matchScopes would match nothing, numbers of objects have no scopes", resource.Resource)
		}
	}
	return configuration.LimitedResources, nil
}
