// Package sinks sends the audit events of selected workspaces to webhooks, files and S3 buckets, each by an audit policy of its own. Their
// configuration is a file of the administrator of the shard. Backends are upstream's, but for S3.
//
// No request waits for a sink: each has a buffer, and what does not fit is dropped and counted in apiserver_audit_error_total.
package sinks

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Configuration is the content of a file of sinks. Paths of files in it are relative to the file.
type Configuration struct {
	metav1.TypeMeta `json:",inline"`
	Sinks           []Sink `json:"sinks"`
}

// Version and kind of a Configuration.
const (
	apiVersion = "audit.kcp.io/v1alpha1"
	kind       = "AuditSinks"
)

// Sink is a receiver of events. It has one of Webhook, File and S3.
type Sink struct {
	// Name is that of the sink in logs and, with S3, in the names of objects.
	Name string `json:"name"`
	// Workspaces are those whose events it gets.
	Workspaces Selector `json:"workspaces"`
	// PolicyFile is a Policy of audit.k8s.io/v1.
	PolicyFile string `json:"policyFile"`
	// BufferSize is the number of events that wait to be sent.
	BufferSize int `json:"bufferSize,omitempty"`

	Webhook *Webhook `json:"webhook,omitempty"`
	File    *File    `json:"file,omitempty"`
	S3      *S3      `json:"s3,omitempty"`
}

// Selector selects workspaces: those that Paths or LogicalClusters name, or all if both are empty, which have the labels.
type Selector struct {
	// Paths are workspaces that are selected with all below them, such as root:org.
	Paths []string `json:"paths,omitempty"`
	// LogicalClusters are names of logical clusters.
	LogicalClusters []string `json:"logicalClusters,omitempty"`
	// LabelSelector selects LogicalClusters by their labels.
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// Webhook receives events by HTTP.
type Webhook struct {
	KubeconfigFile string `json:"kubeconfigFile"`
}

// File is a file in the file system of the shard. A zero limit has the default of stock's audit log.
type File struct {
	Path             string `json:"path"`
	MaxSizeMegabytes int    `json:"maxSizeMegabytes,omitempty"`
	MaxBackups       int    `json:"maxBackups,omitempty"`
	MaxAgeDays       int    `json:"maxAgeDays,omitempty"`
}

// S3 is a bucket in which each batch of events becomes an object.
type S3 struct {
	EndpointURL         string `json:"endpointURL"`
	Bucket              string `json:"bucket"`
	Prefix              string `json:"prefix,omitempty"`
	Region              string `json:"region,omitempty"`
	AddressingStyle     string `json:"addressingStyle,omitempty"`
	CAFile              string `json:"caFile,omitempty"`
	AccessKeyIDFile     string `json:"accessKeyIDFile"`
	SecretAccessKeyFile string `json:"secretAccessKeyFile"`
}

// read reads and validates a file.
func read(file string) (*Configuration, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var cfg Configuration
	if err := yaml.UnmarshalStrict(bytes.TrimSpace(content), &cfg); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", file, err)
	}
	cfg.resolve(filepath.Dir(file))
	if errs := cfg.validate(); len(errs) > 0 {
		return nil, fmt.Errorf("%s: %w", file, errs.ToAggregate())
	}
	return &cfg, nil
}

func (c *Configuration) validate() field.ErrorList {
	var errs field.ErrorList
	if c.APIVersion != apiVersion {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), c.APIVersion, []string{apiVersion}))
	}
	if c.Kind != kind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), c.Kind, []string{kind}))
	}
	names, files := sets.New[string](), sets.New[string]()
	for i, sink := range c.Sinks {
		at := field.NewPath("sinks").Index(i)
		errs = append(errs, sink.validate(at)...)
		if sink.Name != "" && names.Has(sink.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), sink.Name))
		}
		names.Insert(sink.Name)
		if sink.File == nil || sink.File.Path == "" {
			continue
		}
		if files.Has(sink.File.Path) { // each sink rotates its file
			errs = append(errs, field.Duplicate(at.Child("file", "path"), sink.File.Path))
		}
		files.Insert(sink.File.Path)
	}
	return errs
}

func (s *Sink) validate(at *field.Path) field.ErrorList {
	errs := required(at.Child("name"), s.Name)
	if _, err := logicalcluster.ParseName(s.Name); s.Name != "" && err != nil {
		errs = append(errs, field.Invalid(at.Child("name"), s.Name, "want lower-case letters, digits and '-', at most 63 characters"))
	}
	errs = append(errs, required(at.Child("policyFile"), s.PolicyFile)...)
	errs = append(errs, s.Workspaces.validate(at.Child("workspaces"))...)
	if s.BufferSize < 0 || s.BufferSize > maxBufferSize {
		errs = append(errs, field.Invalid(at.Child("bufferSize"), s.BufferSize, fmt.Sprintf("want a number of events up to %d, or 0 for the default", maxBufferSize)))
	}
	receivers := 0
	if s.Webhook != nil {
		receivers++
		errs = append(errs, required(at.Child("webhook", "kubeconfigFile"), s.Webhook.KubeconfigFile)...)
	}
	if s.File != nil {
		receivers++
		errs = append(errs, s.File.validate(at.Child("file"))...)
	}
	if s.S3 != nil {
		receivers++
		errs = append(errs, s.S3.validate(at.Child("s3"))...)
	}
	if receivers != 1 {
		errs = append(errs, field.Invalid(at, s.Name, "want one of webhook, file and s3"))
	}
	return errs
}

func (f *File) validate(at *field.Path) field.ErrorList {
	errs := required(at.Child("path"), f.Path)
	for _, limit := range []struct {
		name  string
		value int
	}{{"maxSizeMegabytes", f.MaxSizeMegabytes}, {"maxBackups", f.MaxBackups}, {"maxAgeDays", f.MaxAgeDays}} {
		if limit.value < 0 {
			errs = append(errs, field.Invalid(at.Child(limit.name), limit.value, "want a number greater than 0, or 0 for the default"))
		}
	}
	return errs
}

func (s *S3) validate(at *field.Path) field.ErrorList {
	errs := required(at.Child("endpointURL"), s.EndpointURL)
	errs = append(errs, required(at.Child("bucket"), s.Bucket)...)
	errs = append(errs, required(at.Child("accessKeyIDFile"), s.AccessKeyIDFile)...)
	errs = append(errs, required(at.Child("secretAccessKeyFile"), s.SecretAccessKeyFile)...)
	if styles := []string{config.AddressingPath, config.AddressingVirtualHosted}; s.AddressingStyle != "" && s.AddressingStyle != styles[0] && s.AddressingStyle != styles[1] {
		errs = append(errs, field.NotSupported(at.Child("addressingStyle"), s.AddressingStyle, styles))
	}
	return errs
}

func (s *Selector) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.Paths) == 0 && len(s.LogicalClusters) == 0 && s.LabelSelector == nil {
		errs = append(errs, field.Required(at, "want paths, logicalClusters or labelSelector; the path root selects all workspaces below root"))
	}
	for i, path := range s.Paths {
		if parsed, err := logicalcluster.ParsePath(path); err != nil || path == logicalcluster.Wildcard.String() {
			errs = append(errs, field.Invalid(at.Child("paths").Index(i), path, "want the path of a workspace, such as root:org"))
		} else {
			s.Paths[i] = parsed.String()
		}
	}
	for i, name := range s.LogicalClusters {
		if _, err := logicalcluster.ParseName(name); err != nil {
			errs = append(errs, field.Invalid(at.Child("logicalClusters").Index(i), name, err.Error()))
		}
	}
	if s.LabelSelector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(s.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	}
	return errs
}

func required(at *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}

// resolve makes the paths of files absolute, with one spelling for each.
func (c *Configuration) resolve(directory string) {
	for i := range c.Sinks {
		sink := &c.Sinks[i]
		files := []*string{&sink.PolicyFile}
		switch {
		case sink.Webhook != nil:
			files = append(files, &sink.Webhook.KubeconfigFile)
		case sink.File != nil:
			files = append(files, &sink.File.Path)
		case sink.S3 != nil:
			files = append(files, &sink.S3.CAFile, &sink.S3.AccessKeyIDFile, &sink.S3.SecretAccessKeyFile)
		}
		for _, file := range files {
			if *file != "" && !filepath.IsAbs(*file) {
				*file = filepath.Join(directory, *file)
			}
			if *file != "" {
				*file = filepath.Clean(*file)
			}
		}
	}
}
