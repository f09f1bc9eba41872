package webhookclient

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	exactjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/atoll-dev/atoll/internal/nesting"
)

// reviewLevels are the levels of a review around the objects that it contains, with room for their managed fields.
const reviewLevels = 16

var errNoJSON = errors.New("the response of the webhook is no JSON object")

// checkedBody is the body of a review, which fails if an object in it, or the patch in it, nests too deep. The stock clients would
// decode any encoding; webhooks answer in JSON.
type checkedBody struct {
	io.ReadCloser
	maxLevels int
	checked   *bytes.Reader
}

// Read implements io.Reader.
func (b *checkedBody) Read(p []byte) (int, error) {
	if b.checked == nil {
		content, err := io.ReadAll(b.ReadCloser)
		if err != nil {
			return 0, err
		}
		if err := checkReview(content, b.maxLevels); err != nil {
			return 0, err
		}
		b.checked = bytes.NewReader(content)
	}
	return b.checked.Read(p)
}

func checkReview(content []byte, maxLevels int) error {
	if len(content) == 0 {
		return nil // the client reports it
	}
	if start := bytes.TrimLeft(content, " \t\r\n"); len(start) == 0 || start[0] != '{' {
		return errNoJSON
	}
	if err := nesting.CheckJSON(content, maxLevels+reviewLevels); err != nil {
		return fmt.Errorf("the response of the webhook: %w", err)
	}
	var review struct {
		Response struct {
			Patch []byte `json:"patch"`
		} `json:"response"`
	}
	if exactjson.Unmarshal(content, &review) != nil {
		return nil // the client reports it
	}
	if err := nesting.CheckJSONPatch(review.Response.Patch, maxLevels); err != nil {
		return fmt.Errorf("the patch of the webhook: %w", err)
	}
	return nil
}
