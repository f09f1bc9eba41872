package audit

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// printTable prints an event in each line.
func printTable(out io.Writer, events []auditv1.Event) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "TIME\tUSER\tVERB\tRESOURCE\tNAME\tCODE")
	for i := range events {
		fmt.Fprintln(w, strings.Join(columns(&events[i]), "\t"))
	}
	return w.Flush()
}

func columns(event *auditv1.Event) []string {
	user := event.User.Username
	if user == "" {
		user = "<unknown>"
	}
	if event.ImpersonatedUser != nil {
		user += " as " + event.ImpersonatedUser.Username
	}
	resource, name := event.RequestURI, ""
	if ref := event.ObjectRef; ref != nil {
		resource = ref.Resource
		if ref.APIGroup != "" {
			resource += "." + ref.APIGroup
		}
		if ref.Subresource != "" {
			resource += "/" + ref.Subresource
		}
		name = ref.Name
		if ref.Namespace != "" {
			name = ref.Namespace + "/" + ref.Name
		}
	}
	code := ""
	if event.ResponseStatus != nil {
		code = strconv.Itoa(int(event.ResponseStatus.Code))
	}
	values := []string{event.StageTimestamp.UTC().Format(time.RFC3339), user, event.Verb, resource, name, code}
	for i := range values {
		values[i] = printable(values[i])
	}
	return values
}

// printable returns a text without characters that a terminal interprets: clients choose most of an event.
func printable(text string) string {
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
