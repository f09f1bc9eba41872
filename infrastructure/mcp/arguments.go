package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/atoll-dev/atoll/infrastructure/shortname"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	defaultPage, maxPage = 50, 100
	maxWaitSeconds       = 300
	// maxToken bounds the length of the argument continue.
	maxToken = 8 << 10
)

// inWorkspace is the argument that all tools have.
type inWorkspace struct {
	Workspace string `json:"workspace" jsonschema:"the workspace to act in: its path such as root:org:team, or the name of its logical cluster"`
}

// workspace returns the argument after validating that it names one workspace, and cannot address anything else in a URL.
func (w inWorkspace) workspace() (string, error) {
	path, err := logicalcluster.ParsePath(w.Workspace)
	if err != nil {
		return "", &argumentError{"workspace", fmt.Sprintf("%q is no workspace: expected a path such as root:org:team, or the name of a logical cluster", shorten(w.Workspace))}
	}
	if name, ok := path.Name(); ok && (name.IsWildcard() || name.IsSystem()) {
		return "", &argumentError{"workspace", fmt.Sprintf("%q is no workspace of users", shorten(w.Workspace))}
	}
	return path.String(), nil
}

// page are the arguments of lists.
type page struct {
	Limit    int    `json:"limit,omitempty" jsonschema:"how many entries to return"`
	Continue string `json:"continue,omitempty" jsonschema:"the value of continue in the previous page, to get the next one"`
}

func (p page) limit() int {
	if p.Limit == 0 {
		return defaultPage
	}
	return p.Limit
}

// ofInstance are the arguments that identify an instance.
type ofInstance struct {
	Kind string `json:"kind" jsonschema:"the kind of the instance, as templates and infrastructure__list_instances show it, or the name of its template"`
	Name string `json:"name" jsonschema:"the name of the instance"`
}

// checkName validates the name of an object.
func checkName(argument, name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return &argumentError{argument, fmt.Sprintf("%q is no name: %s", shorten(name), strings.Join(problems, "; "))}
	}
	return nil
}

// position is where a list of instances of all kinds continues.
type position struct {
	Resource string `json:"r"`
	Continue string `json:"c,omitempty"`
}

var errContinue = &argumentError{"continue", "it is not a value that this tool has returned"}

func (p position) encode() string {
	text, err := json.Marshal(p)
	if err != nil { // a struct of strings can always be encoded
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// decodePosition accepts only results of encode: JSON and base64 have several encodings of the same value.
func decodePosition(token string) (position, error) {
	if token == "" {
		return position{}, nil
	}
	if len(token) > maxToken {
		return position{}, errContinue
	}
	var p position
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || json.Unmarshal(text, &p) != nil || p.encode() != token {
		return position{}, errContinue
	}
	return p, nil
}

// inputSchema returns the schema of arguments, with bounds for numbers. Tools validate the length of texts themselves, because schema errors
// repeat whole values.
func inputSchema[In any]() (*jsonschema.Schema, error) {
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		return nil, err
	}
	for name, property := range schema.Properties {
		switch name {
		case "limit":
			property.Minimum, property.Maximum, property.Default = ptr.To(1.0), ptr.To[float64](maxPage), json.RawMessage(fmt.Sprint(defaultPage))
		case "waitSeconds":
			property.Minimum, property.Maximum, property.Default = ptr.To(0.0), ptr.To[float64](maxWaitSeconds), json.RawMessage("0")
		case "workspace":
			property.Examples = []any{"root:org:team"}
		}
	}
	return schema, nil
}

// shorten truncates a text that a caller has sent.
func shorten(text string) string { return shortname.Truncate(text, 100) }

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
