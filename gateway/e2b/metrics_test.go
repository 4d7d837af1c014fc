package e2b_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/gateway/e2b"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

// TestMetrics: a sandbox is measured from its start on, and each range has what lies in it.
func TestMetrics(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.create(object{})
	var samples []object
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, err := range a.client.WatchStats(ctx, map[string]string{e2b.LabelKind: e2b.KindSandbox}, 100*time.Millisecond) {
		if err != nil {
			t.Fatalf("there is no measurement: %v", err)
		}
		if samples, _ = a.list("/sandboxes/" + id + "/metrics"); len(samples) > 0 {
			break
		}
	}
	if s := samples[0]; s["cpuCount"] != 2.0 || s["memUsed"] != float64(3<<20) || s["memTotal"] != float64(1<<30) {
		t.Errorf("the measurement is %v", s)
	}
	if before, _ := a.list("/sandboxes/" + id + "/metrics?start=1&end=2"); len(before) != 0 {
		t.Errorf("before it was created it used %v", before)
	}
	if many := a.do(http.StatusOK, "GET", "/sandboxes/metrics?sandbox_ids="+id+",nope", nil)["sandboxes"].(object); len(many) != 1 {
		t.Errorf("of many there is %v", many)
	}
	a.do(http.StatusBadRequest, "GET", "/sandboxes/"+id+"/metrics?start=3&end=2", nil)
	a.do(http.StatusNotFound, "GET", "/sandboxes/nope/metrics", nil)
}

// TestLogs: what the daemon did for a sandbox can be read in both forms.
func TestLogs(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.create(object{})
	for _, path := range []string{"/sandboxes/" + id + "/logs", "/v2/sandboxes/" + id + "/logs?direction=backward&limit=10&level=info"} {
		if logs, is := a.do(http.StatusOK, "GET", path, nil)["logs"].([]any); !is {
			t.Errorf("%s: %v", path, logs)
		}
	}
	a.do(http.StatusBadRequest, "GET", "/v2/sandboxes/"+id+"/logs?direction=up", nil)
	a.do(http.StatusBadRequest, "GET", "/v2/sandboxes/"+id+"/logs?level=loud", nil)
	a.do(http.StatusNotFound, "GET", "/sandboxes/nope/logs", nil)
}

// TestNetwork: what is denied is taken from the internet, what is allowed is put back, and what is private stays closed.
func TestNetwork(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, c := range []struct {
		request       object
		mode          string
		open, notOpen string
	}{
		{object{}, "internet", "", ""},
		{object{"allow_internet_access": true}, "internet", "", ""},
		{object{"allow_internet_access": false}, "none", "", ""},
		{object{"network": object{"denyOut": []string{"0.0.0.0/0"}}}, "none", "", ""},
		{object{"network": object{"denyOut": []string{"0.0.0.0/0"}, "allowOut": []string{"1.1.1.1", "8.8.8.0/24"}}}, "allow", "1.1.1.1/32 8.8.8.0/24", "10.0.0.0/8"},
		{object{"network": object{"denyOut": []string{"8.0.0.0/8"}}}, "allow", "9.0.0.0/8", "10.0.0.0/8 8.0.0.0/8"},
	} {
		id := a.create(c.request)
		if _, err := a.client.Snapshot(t.Context(), id, sdk.SnapshotRequest{}); err != nil {
			t.Fatal(err)
		}
		kept, err := a.client.Raw().ListSnapshots(t.Context(), &agboxv1.ListSnapshotsRequest{SandboxId: id})
		if err != nil {
			t.Fatal(err)
		}
		raw := kept.GetSnapshots()[0].GetSpec().GetNetwork() // a snapshot tells the spec
		if raw.Mode != c.mode {
			t.Errorf("%v: the mode is %q, want %q", c.request, raw.Mode, c.mode)
		}
		text, err := json.Marshal(raw.Allow)
		if err != nil {
			t.Fatal(err)
		}
		for cidr := range strings.FieldsSeq(c.open) {
			if !strings.Contains(string(text), `"`+cidr+`"`) {
				t.Errorf("%v: %s is not open: %s", c.request, cidr, text)
			}
		}
		for cidr := range strings.FieldsSeq(c.notOpen) {
			if strings.Contains(string(text), `"`+cidr+`"`) {
				t.Errorf("%v: %s is open: %s", c.request, cidr, text)
			}
		}
	}
}
