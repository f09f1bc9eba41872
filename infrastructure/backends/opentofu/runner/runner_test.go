package runner

import (
	"encoding/json"
	"fmt"
	"testing"
)

func TestOnlyListedOutputsLeave(t *testing.T) {
	all := map[string]output{}
	if err := json.Unmarshal([]byte(`{
		"count": {"sensitive": false, "value": 3}, "hosts": {"sensitive": false, "value": ["a", 1.5]}, "none": {"sensitive": false, "value": null},
		"password": {"sensitive": true, "value": "secret"}, "key": {"sensitive": true, "value": {"a": 1}}, "other": {"sensitive": false, "value": "x"}
	}`), &all); err != nil {
		t.Fatal(err)
	}
	outputs, connection, err := selectOutputs(Settings{Outputs: []string{"count", "hosts", "none", "password", "absent"}, Connection: []string{"password", "key", "count"}}, all)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%#v", outputs); got != `map[string]interface {}{"count":3, "hosts":[]interface {}{"a", 1.5}}` {
		t.Errorf("outputs %s", got)
	}
	if got := fmt.Sprint(connection); got != `map[count:3 key:{"a": 1} password:secret]` {
		t.Errorf("connection %s", got)
	}
}
