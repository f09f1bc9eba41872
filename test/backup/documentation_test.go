package backup

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/backup/seal"
)

var (
	yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	command   = regexp.MustCompile(`(?m)^etcd backup ((?:[^\n]|\\\n)*)`)
	flag      = regexp.MustCompile(`--[a-z-]+`)
)

// TestDocumentation checks that the manifests of the pages about backups and restores have no fields but those of the kinds, and that its commands have no other
// flags than the program; the other tests run them.
func TestDocumentation(t *testing.T) {
	var pages strings.Builder
	for _, name := range []string{"backup", "backup-schedules", "restore", "restore-shard", "restore-workspace", "restore-by-hand", "restore-drills"} {
		content, err := os.ReadFile(filepath.Join("..", "..", "docs", name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		pages.Write(content)
	}
	page := pages.String()
	kinds := map[string]int{}
	for _, block := range yamlBlock.FindAllStringSubmatch(page, -1) {
		for document := range strings.SplitSeq(block[1], "\n---\n") {
			kind, object := "", any(nil)
			switch {
			case strings.Contains(document, "kind: BackupStore"):
				kind, object = "BackupStore", &operatorv1alpha1.BackupStore{}
			case strings.Contains(document, "kind: BackupSchedule"):
				kind, object = "BackupSchedule", &operatorv1alpha1.BackupSchedule{}
			case strings.Contains(document, "kind: RestoreDrill"):
				kind, object = "RestoreDrill", &operatorv1alpha1.RestoreDrill{}
			case strings.Contains(document, "kind: Restore"):
				kind, object = "Restore", &operatorv1alpha1.Restore{}
			case strings.Contains(document, "kind: Backup"):
				kind, object = "Backup", &operatorv1alpha1.Backup{}
			case strings.HasPrefix(document, "store:"):
				kind, object = "store", &config.Backup{}
			default:
				continue // the etcd of a RootShard
			}
			kinds[kind]++
			if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			if store, ok := object.(*operatorv1alpha1.BackupStore); ok {
				if _, err := seal.ParseRecipients(store.Spec.Encryption.Recipients); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if len(kinds) != 6 {
		t.Errorf("the pages have %v", kinds)
	}
	reference, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "flags", "etcd-backup.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := command.FindAllStringSubmatch(page, -1)
	if len(commands) < 4 {
		t.Fatalf("the pages have %d commands", len(commands))
	}
	for _, found := range commands {
		name := strings.Fields(found[1])[0]
		_, section, known := strings.Cut(string(reference), "\n## etcd-backup "+name+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if !known {
			t.Errorf("there is no command %s", name)
		}
		for _, used := range flag.FindAllString(found[1], -1) {
			if !strings.Contains(section, "| `"+used+" ") && !strings.Contains(section, "| `"+used+"`") {
				t.Errorf("%s has no flag %s", name, used)
			}
		}
	}
}
