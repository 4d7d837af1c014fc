package e2b_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

// TestCreate: a sandbox is ready when it is answered, has all that the SDKs ask for, and the daemon knows of it what it needs to know.
func TestCreate(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	made := a.do(http.StatusCreated, "POST", "/sandboxes", object{
		"templateID": "base:default", "timeout": 60, "metadata": object{"user": "ann", "a b": "c&d"}, "envVars": object{"KEY": "value"},
		"secure": true, "allow_internet_access": false, "unknown": []int{1},
	})
	id := made["sandboxID"].(string)
	if !regexp.MustCompile(`^i[a-z0-9]{20}$`).MatchString(id) {
		t.Errorf("the id is %q", id)
	}
	for field, want := range (object{"templateID": "base", "alias": "base", "envdVersion": "0.6.4", "envdAccessToken": "token of " + id, "domain": "localhost:7439", "clientID": "6532622b"}) {
		if made[field] != want {
			t.Errorf("%s is %v, want %v", field, made[field], want)
		}
	}
	info := a.info(id)
	for field, want := range (object{"state": "running", "cpuCount": 2.0, "memoryMB": 1024.0, "diskSizeMB": 0.0, "allowInternetAccess": false}) {
		if info[field] != want {
			t.Errorf("%s is %v, want %v", field, info[field], want)
		}
	}
	if metadata := info["metadata"].(object); len(metadata) != 2 || metadata["user"] != "ann" || metadata["a b"] != "c&d" {
		t.Errorf("the metadata are %v", metadata)
	}
	if cycle := info["lifecycle"].(object); cycle["onTimeout"] != "kill" || cycle["autoResume"] != false {
		t.Errorf("the lifecycle is %v", cycle)
	}
	start, end := moment(t, info["startedAt"]), moment(t, info["endAt"])
	if life := end.Sub(start); life != time.Minute {
		t.Errorf("it lives for %v", life)
	}
	if again := a.info(id); again["endAt"] != info["endAt"] {
		t.Errorf("its end is %v and then %v", info["endAt"], again["endAt"])
	}
	result, err := a.client.Run(t.Context(), id, []string{"sh", "-c", "echo $KEY $E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID"})
	if want := "value true " + id + " base\n"; err != nil || string(result.Stdout) != want {
		t.Errorf("its environment: %q, %v; want %q", result.Stdout, err, want)
	}
}

func moment(t *testing.T, text any) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text.(string))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestCreateDefaults: how long a sandbox lives depends on the API's generation.
func TestCreateDefaults(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for path, want := range map[string]time.Duration{"/sandboxes": 15 * time.Second, "/v2/sandboxes": 5 * time.Minute} {
		info := a.info(a.do(http.StatusCreated, "POST", path, object{"templateID": "base"})["sandboxID"].(string))
		if life := moment(t, info["endAt"]).Sub(moment(t, info["startedAt"])); life != want {
			t.Errorf("%s: it lives for %v, want %v", path, life, want)
		}
	}
}

// TestCreateRefused: what cannot be is refused before anything is made, and what fails leaves nothing.
func TestCreateRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, c := range []struct {
		request object
		status  int
		says    string
	}{
		{object{}, 400, "templateID"},
		{object{"templateID": "nope"}, 404, "gateway.e2b.templates"},
		{object{"templateID": "broken"}, 500, "does not start"},
		{object{"templateID": "base", "timeout": 0}, 400, "Timeout must be greater than 0"},
		{object{"templateID": "base", "timeout": 1 << 30}, 400, "Timeout cannot be greater"},
		{object{"templateID": "base", "iam": object{"tokens": object{"x": object{}}}}, 400, "iam"},
		{object{"templateID": "base", "volumeMounts": []object{{"name": "x", "path": "/x"}}}, 400, "volumeMounts"},
		{object{"templateID": "base", "autoPauseMemory": false}, 400, "autoPause"},
		{object{"templateID": "base", "autoPause": true, "autoPauseMemory": false, "autoResume": object{"enabled": true}}, 400, "autoResume"},
		{object{"templateID": "base", "network": object{"rules": object{"x": 1}}}, 400, "network.rules"},
		{object{"templateID": "base", "network": object{"egressProxy": object{"address": "x"}}}, 400, "egressProxy"},
		{object{"templateID": "base", "network": object{"maskRequestHost": "a b"}}, 400, "maskRequestHost"},
		{object{"templateID": "base", "network": object{"denyOut": []string{"example.com"}}}, 400, "invalid denied CIDR"},
		{object{"templateID": "base", "network": object{"allowOut": []string{"example.com"}}}, 400, "domain"},
		{object{"templateID": "base", "network": object{"allowOut": []string{"10.0.0.1"}}}, 400, "public"},
		{object{"templateID": "base", "network": object{"denyOut": []string{"2001:db8::/32"}}}, 400, "IPv4"},
		{object{"templateID": 7}, 400, "JSON"},
	} {
		refusal := a.do(c.status, "POST", "/v2/sandboxes", c.request)
		if message, _ := refusal["message"].(string); !strings.Contains(message, c.says) {
			t.Errorf("%v: %q does not say %q", c.request, message, c.says)
		}
	}
	if left, err := a.client.ListSandboxes(t.Context(), sdk.Filter{States: []sdk.State{sdk.StateReady, sdk.StateFailed, sdk.StatePending}}); err != nil || len(left) != 0 {
		t.Errorf("refused creates leave %v, %v", left, err)
	}
}

// TestUnknown: nothing but health is answered to strangers, and what is not there says so in the same form.
func TestUnknown(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.do(http.StatusNoContent, "GET", "/health", nil)
	a.do(http.StatusNotFound, "GET", "/nothing", nil)
	a.do(http.StatusNotFound, "PATCH", "/sandboxes/x", nil)
	for _, path := range []string{"/volumes", "/secrets/x", "/teams", "/api-keys", "/templates/tags", "/templates/x/files/y"} {
		a.do(http.StatusNotImplemented, "POST", path, object{})
	}
	a.do(http.StatusBadRequest, "POST", "/v2/sandboxes", "{")
	a.do(http.StatusRequestEntityTooLarge, "POST", "/v2/sandboxes", `{"templateID":"`+strings.Repeat("x", 2<<20)+`"}`)
	for _, id := range []string{"i00000000000000000000", "not-one-of-ours", "x", url.PathEscape("../etc")} {
		a.do(http.StatusNotFound, "GET", "/sandboxes/"+id, nil)
		a.do(http.StatusNotFound, "DELETE", "/sandboxes/"+id, nil)
		a.do(http.StatusNotFound, "POST", "/sandboxes/"+id+"/pause", nil)
		a.do(http.StatusNotFound, "POST", "/v2/sandboxes/"+id+"/connect", object{})
	}
	foreign, err := a.client.CreateSandbox(t.Context(), sdk.Spec{Image: "debian:12"})
	if err != nil {
		t.Fatal(err)
	}
	a.do(http.StatusNotFound, "DELETE", "/sandboxes/"+foreign.ID, nil)
	r, err := http.NewRequestWithContext(t.Context(), "GET", a.url+"/sandboxes", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultTransport.(*http.Transport).Clone().RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: %s", response.Status)
	}
}
