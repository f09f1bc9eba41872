package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	ipCommand     = "/sbin/ip"
	forwardChain  = "ATOLL-DEV-FORWARD"
	sysctlsBackup = "sysctls"
)

// sysctls are the kernel settings that the cluster's programs change; Down restores the old values.
var sysctls = []string{
	"net/ipv4/ip_forward",
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// ensureNetwork creates the bridge with the node's address and the route to Services, and accepts the pods' packets.
func (l Layout) ensureNetwork(ctx context.Context) error {
	if err := l.saveSysctls(); err != nil {
		return fmt.Errorf("noting the kernel's settings: %w", err)
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("turning IP forwarding on: %w", err)
	}
	if _, err := os.Stat("/sys/class/net/" + bridge); errors.Is(err, fs.ErrNotExist) {
		if _, err := runCommand(ctx, "", ipCommand, "link", "add", bridge, "type", "bridge"); err != nil {
			return err
		}
	}
	_, bits, _ := strings.Cut(podCIDR, "/")
	for _, args := range [][]string{
		{"addr", "replace", nodeIP + "/" + bits, "dev", bridge},
		{"link", "set", bridge, "up"},
		// Services work without a default route, and packets to a Service that does not exist do not leave the machine.
		{"route", "replace", serviceCIDR, "dev", bridge},
	} {
		if _, err := runCommand(ctx, "", ipCommand, args...); err != nil {
			return err
		}
	}
	return ensureForwarding(ctx)
}

// ensureForwarding accepts packets from and to the bridge, for machines whose FORWARD policy is DROP.
func ensureForwarding(ctx context.Context) error {
	saved, err := runCommand(ctx, "", "/usr/sbin/iptables-save", "-t", "filter")
	if err != nil {
		return err
	}
	if strings.Contains(saved, ":"+forwardChain+" ") {
		return nil
	}
	rules := fmt.Sprintf("*filter\n:%[1]s - [0:0]\n-A %[1]s -i %[2]s -j ACCEPT\n-A %[1]s -o %[2]s -j ACCEPT\n-A FORWARD -j %[1]s\nCOMMIT\n",
		forwardChain, bridge)
	_, err = runCommand(ctx, rules, "/usr/sbin/iptables-restore", "--noflush")
	return err
}

func (l Layout) saveSysctls() error {
	if _, err := os.Stat(l.path(sysctlsBackup)); err == nil {
		return nil // saved by an earlier start; the current values are those of the cluster
	}
	var saved strings.Builder
	for _, name := range sysctls {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(&saved, "%s %s\n", name, strings.TrimSpace(string(value)))
	}
	return os.WriteFile(l.path(sysctlsBackup), []byte(saved.String()), 0o644)
}

func (l Layout) restoreSysctls() error {
	saved, err := os.ReadFile(l.path(sysctlsBackup))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(saved)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !slices.Contains(sysctls, name) {
			continue
		}
		path := filepath.Join("/proc/sys", name)
		if current, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(current)) == value {
			continue
		}
		errs = append(errs, os.WriteFile(path, []byte(value), 0o644))
	}
	return errors.Join(errs...)
}

// removeNetwork removes the bridge (and with it its routes) and every iptables chain of the cluster.
func removeNetwork(ctx context.Context) error {
	var errs []error
	if _, err := os.Stat("/sys/class/net/" + bridge); err == nil {
		_, err := runCommand(ctx, "", ipCommand, "link", "delete", bridge)
		errs = append(errs, err)
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		saved, err := runCommand(ctx, "", "/usr/sbin/"+family+"-save")
		if err != nil {
			if family == "iptables" { // a machine without IPv6 needs no cleanup there
				errs = append(errs, err)
			}
			continue
		}
		if script := renderRemovalScript(saved); script != "" {
			_, err := runCommand(ctx, script, "/usr/sbin/"+family+"-restore", "--noflush")
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

var (
	clusterChain = regexp.MustCompile(`^(KUBE-|ATOLL-DEV-|CNI-HOSTPORT-|CNI-DN-)`)
	cniChain     = regexp.MustCompile(`^CNI-[0-9a-f]+$`)
)

// renderRemovalScript converts the output of iptables-save to an input of iptables-restore --noflush that removes the cluster's chains
// and the rules that jump to them, and keeps all others. It is empty if the cluster has no chains. A chain that the CNI plugins created
// for one pod belongs to the cluster if a rule that jumps to it contains the name of its network.
func renderRemovalScript(saved string) string {
	var script strings.Builder
	for _, table := range strings.Split(saved, "\nCOMMIT") {
		start := strings.LastIndex("\n"+table, "\n*")
		if start < 0 {
			continue
		}
		lines := strings.Split(strings.TrimSpace(table[start:]), "\n")
		chains := listClusterChains(lines[1:])
		if len(chains) == 0 {
			continue
		}
		fmt.Fprintf(&script, "%s\n", lines[0])
		for _, line := range lines[1:] {
			chain, target := parseRule(line)
			if chain != "" && !slices.Contains(chains, chain) && slices.Contains(chains, target) {
				fmt.Fprintf(&script, "-D %s\n", strings.TrimPrefix(line, "-A "))
			}
		}
		for _, chain := range chains {
			fmt.Fprintf(&script, "-F %s\n", chain)
		}
		for _, chain := range chains {
			fmt.Fprintf(&script, "-X %s\n", chain)
		}
		script.WriteString("COMMIT\n")
	}
	return script.String()
}

// listClusterChains returns the cluster's chains in one table, in the order of the table.
func listClusterChains(lines []string) []string {
	var chains []string
	for _, line := range lines {
		if name, ok := strings.CutPrefix(line, ":"); ok {
			if name, _, _ = strings.Cut(name, " "); clusterChain.MatchString(name) {
				chains = append(chains, name)
			}
			continue
		}
		_, target := parseRule(line)
		if cniChain.MatchString(target) && strings.Contains(line, networkName) && !slices.Contains(chains, target) {
			chains = append(chains, target)
		}
	}
	return chains
}

// parseRule returns the chain of a rule and the chain it jumps to; both are empty if the line is not a rule.
func parseRule(line string) (chain, target string) {
	rest, ok := strings.CutPrefix(line, "-A ")
	if !ok {
		return "", ""
	}
	chain, rest, _ = strings.Cut(rest, " ")
	for _, jump := range []string{"-j ", "-g "} {
		if i := strings.LastIndex(" "+rest, " "+jump); i >= 0 {
			target, _, _ = strings.Cut(rest[i+len(jump):], " ")
			return chain, target
		}
	}
	return chain, ""
}
