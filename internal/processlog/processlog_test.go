package processlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"
)

func TestErrorsAreShort(t *testing.T) {
	for name, debug := range map[string]bool{"errors have no stack": false, "with debug they have one": true} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			newLogger(&out, false, debug).Error(errors.New("refused"), "Writing a status")
			var line struct{ TS, Msg, Error, Stacktrace string }
			if err := json.Unmarshal(out.Bytes(), &line); err != nil {
				t.Fatalf("%v: %s", err, out.String())
			}
			if line.Msg != "Writing a status" || line.Error != "refused" || (line.Stacktrace != "") != debug {
				t.Errorf("the line is %s", out.String())
			}
			if _, err := time.Parse(time.RFC3339Nano, line.TS); err != nil {
				t.Error(err)
			}
		})
	}
}
