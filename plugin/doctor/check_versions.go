package doctor

import (
	"maps"
	"slices"
	"strings"
)

// versions finds shards of different versions, as they are during a rollout, or after one that has stopped.
func versions(facts *Facts, _ Limits) []Finding {
	byVersion := map[string][]string{}
	for _, server := range facts.Servers {
		if server.Version != "" {
			byVersion[server.Version] = append(byVersion[server.Version], server.Name)
		}
	}
	if len(byVersion) < 2 {
		return nil
	}
	var parts []string
	for _, version := range slices.Sorted(maps.Keys(byVersion)) {
		parts = append(parts, version+" ("+strings.Join(byVersion[version], ", ")+")")
	}
	return []Finding{{
		Severity: SeverityWarning, Object: "installation", Message: "shards have different versions: " + strings.Join(parts, ", "),
		NextStep: "Wait for the rollout to end, or look for the condition RolledOut that is False",
	}}
}
