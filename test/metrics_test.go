package test_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
	"github.com/agbox-dev/agbox/server/meter"
	"github.com/agbox-dev/agbox/test/gatewaytest"
)

// TestMetrics: an operator gets what docs/metrics.md says and nothing else, nobody else does, and the dashboard asks for nothing
// else.
func TestMetrics(t *testing.T) {
	t.Parallel()
	_, socket := sdktest.Start(t)
	g := gatewaytest.Start(t, socket, access.Token{Grants: []access.Grant{access.GrantOperator}})
	box, err := g.Client(g.Token).CreateSandbox(t.Context(), sdk.Spec{Image: "image", Labels: map[string]string{"told": "by-a-client"}})
	if err != nil {
		t.Fatal(err)
	}
	if status, text := scrape(t, g, g.NewToken(access.Token{Name: "other"})); status != http.StatusForbidden || !strings.Contains(text, "operator") {
		t.Errorf("a token without the grant: %d %s", status, text)
	}
	if status, _ := scrape(t, g, "e2b_"+strings.Repeat("0", 40)); status != http.StatusUnauthorized {
		t.Errorf("a token that nobody knows: %d", status)
	}
	scrape(t, g, g.Token) // the next one tells of it
	status, text := scrape(t, g, g.Token)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	for _, line := range []string{`agbox_calls_total{call="CreateSandbox",code="OK"} 1`, `agbox_engine_up 1`,
		`agbox_gateway_request_seconds_count{plane="own",status="2xx"} 1`, `agbox_gateway_tokens_refused_total 1`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("there is no line %s in\n%s", line, text)
		}
	}
	if strings.Contains(text, box.ID) || strings.Contains(text, "by-a-client") {
		t.Errorf("the metrics tell of a sandbox:\n%s", text)
	}

	given := namesIn(text)
	maps.Copy(given, namesIn(engineMetrics(t)))
	page := read(t, "../docs/metrics.md")
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(agbox_\\w+)` \\| [^|]+ \\|").FindAllStringSubmatch(page, -1) {
		documented[row[1]] = true
	}
	for name := range given {
		if !documented[name] {
			t.Errorf("docs/metrics.md does not tell of %s", name)
		}
	}
	for name := range documented {
		if !given[name] {
			t.Errorf("docs/metrics.md tells of %s, which is not there", name)
		}
	}

	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(read(t, "../docs/grafana.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			for _, name := range regexp.MustCompile(`agbox_\w+`).FindAllString(target.Expr, -1) {
				asked++
				if !given[name] && !given[strings.TrimSuffix(name, "_bucket")] && !given[strings.TrimSuffix(name, "_count")] {
					t.Errorf("docs/grafana.json asks for %s, which is not there", name)
				}
			}
		}
	}
	if asked == 0 {
		t.Error("docs/grafana.json asks for nothing")
	}
}

// engineMetrics are those of a daemon whose engine has refused a call, and which misses sandboxes made ahead.
func engineMetrics(t *testing.T) string {
	m := meter.New()
	way := m.Engine(refusing{})
	for _, url := range []string{"http://docker/v1.47/containers/id-of-one/json", "http://docker/of-nobody"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := way.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	none := func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error { return nil }
	if err := m.Stream(none)(nil, nil, &grpc.StreamServerInfo{FullMethod: "/service/Watch"}, nil); err != nil {
		t.Fatal(err)
	}
	text, err := m.Text(&meter.State{Unpooled: map[string]uint64{"why": 1},
		Engine: &meter.Engine{Running: map[string]uint32{"person": 1}, Waiting: map[string]uint32{"refill": 1}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`agbox_engine_errors_total{endpoint="containers",kind="4xx",method="GET"} 1`,
		`agbox_engine_call_seconds_count{endpoint="other",method="GET"} 1`, `agbox_engine_waiting{for="refill"} 1`} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("there is no line %s in\n%s", line, text)
		}
	}
	if strings.Contains(string(text), "id-of-one") || strings.Contains(string(text), "of-nobody") {
		t.Errorf("the metrics tell of a container:\n%s", text)
	}
	return string(text)
}

type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
}

func scrape(t *testing.T, g *gatewaytest.Gateway, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, g.URL()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Close = true
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func namesIn(text string) map[string]bool {
	names := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (\w+) `).FindAllStringSubmatch(text, -1) {
		names[line[1]] = true
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
