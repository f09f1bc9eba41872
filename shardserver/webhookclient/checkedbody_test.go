package webhookclient

import (
	"encoding/base64"
	"io"
	"strings"
	"testing"
)

func TestReviews(t *testing.T) {
	const limit = 10
	lists := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	patch := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, tc := range map[string]struct {
		review  string
		refused bool
	}{
		"an answer":                            {`{"response":{"allowed":true}}`, false},
		"a converted object at the limit":      {`{"response":{"convertedObjects":[{"a":` + lists(limit-1) + `}]}}`, false},
		"a converted object above the limit":   {`{"response":{"convertedObjects":[{"a":` + lists(limit+reviewLevels) + `}]}}`, true},
		"a patch at the limit":                 {`{"response":{"patch":"` + patch(`[{"op":"add","path":"/a","value":`+lists(limit-1)+`}]`) + `"}}`, false},
		"a patch above the limit":              {`{"response":{"patch":"` + patch(`[{"op":"add","path":"/a","value":`+lists(limit)+`}]`) + `"}}`, true},
		"a second patch in other letters":      {`{"response":{"patch":"` + patch(`[{"op":"add","path":"/a","value":`+lists(limit)+`}]`) + `","Patch":""}}`, true},
		"protobuf":                             {"k8s\x00", true},
		"YAML":                                 {"response:\n  allowed: true\n", true},
		"no content, which the client reports": {"", false},
		"no review, which the client reports":  {`{"response":5}`, false},
		"white space before the object":        {" \r\n\t{}", false},
	} {
		t.Run(name, func(t *testing.T) {
			content, err := io.ReadAll(&checkedBody{ReadCloser: io.NopCloser(strings.NewReader(tc.review)), maxLevels: limit})
			if (err != nil) != tc.refused || err == nil && string(content) != tc.review {
				t.Errorf("read %q with error %v", content, err)
			}
		})
	}
}
