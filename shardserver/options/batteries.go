package options

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Battery is a named set of optional bootstrap content.
type Battery string

// The batteries, named as in kcp.
const (
	BatteryAdmin          Battery = "admin"
	BatteryWorkspaceTypes Battery = "workspace-types"
	BatteryUser           Battery = "user"
	BatteryMetricsViewer  Battery = "metrics-viewer"
)

var allBatteries = []Battery{BatteryAdmin, BatteryMetricsViewer, BatteryUser, BatteryWorkspaceTypes}

// Batteries is the set of enabled batteries.
type Batteries map[Battery]bool

// Names returns the set's names, sorted.
func (b Batteries) Names() []string {
	names := make([]string, 0, len(b))
	for battery, on := range b {
		if on {
			names = append(names, string(battery))
		}
	}
	sort.Strings(names)
	return names
}

// DefaultBatteries returns the batteries that are enabled by default.
func DefaultBatteries() []string {
	return []string{string(BatteryAdmin), string(BatteryWorkspaceTypes)}
}

// ParseBatteries parses a plain list, which replaces the default, or a list in which every item has a prefix '+' or
// '-', which changes the default. Mixing both, an unknown name, or a battery without one that it requires is an error.
func ParseBatteries(values []string) (Batteries, error) {
	set := Batteries{}
	differential := 0
	for _, value := range values {
		if strings.HasPrefix(value, "+") || strings.HasPrefix(value, "-") {
			differential++
		}
	}
	if differential > 0 {
		if differential != len(values) {
			return nil, fmt.Errorf("--batteries-included: got %q, want either plain names or names that all start with '+' or '-'", strings.Join(values, ","))
		}
		for _, name := range DefaultBatteries() {
			set[Battery(name)] = true
		}
	}
	for _, value := range values {
		on := !strings.HasPrefix(value, "-")
		name := Battery(strings.TrimLeft(value, "+-"))
		if name == "" && differential == 0 {
			continue // an empty list disables all
		}
		if !slices.Contains(allBatteries, name) {
			return nil, fmt.Errorf("--batteries-included: got %q, want one of %v", value, allBatteries)
		}
		set[name] = on
	}
	if set[BatteryUser] && !set[BatteryAdmin] {
		return nil, fmt.Errorf("--batteries-included: %q needs %q", BatteryUser, BatteryAdmin)
	}
	return set, nil
}

func joinErrors(errs []error) error { return errors.Join(errs...) }
