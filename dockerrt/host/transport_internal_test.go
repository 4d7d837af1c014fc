package host

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/dockerrt/engine"
)

// TestChooseTransport: by the engine's address, by what the engine is, or as the configuration says.
func TestChooseTransport(t *testing.T) {
	system := "Debian GNU/Linux"
	info := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]string{"OperatingSystem": system})
	})
	server, remote := httptest.NewUnstartedServer(info), httptest.NewServer(info)
	defer remote.Close()
	dir, err := os.MkdirTemp("", "agbox") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	server.Listener.Close()
	if server.Listener, err = net.Listen("unix", filepath.Join(dir, "s")); err != nil {
		t.Fatal(err)
	}
	server.Start()
	defer server.Close()
	local, far := "unix://"+filepath.Join(dir, "s"), "tcp://"+remote.Listener.Addr().String()
	for _, tt := range []struct {
		host, system string
		transport    ExecTransport
		relays       bool
	}{
		{local, "Debian GNU/Linux", "", false}, {local, "Debian GNU/Linux", TransportAuto, false}, {local, "Docker Desktop", TransportAuto, true},
		{local, "Docker Desktop", TransportSocket, false}, {local, "Debian GNU/Linux", TransportEngine, true},
		{far, "", TransportAuto, true}, {far, "", TransportSocket, false},
	} {
		system = tt.system
		api, err := client.NewClientWithOpts(client.WithHost(tt.host), client.WithVersion("1.41"))
		if err != nil {
			t.Fatal(err)
		}
		facts, err := Ask(t.Context(), engine.New(api, engine.Owner{}), tt.transport, slog.New(slog.DiscardHandler))
		if err != nil || facts.Relays != tt.relays {
			t.Errorf("%+v: %v, %v", tt, facts.Relays, err)
		}
		api.Close()
	}
}

func TestAtLeast(t *testing.T) {
	for version, want := range map[string]bool{"5.12.0": true, "6.1.0-13-amd64": true, "5.11.22": false, "4.19": false, "5.4.0-150-generic": false, "": false, "x": false} {
		if atLeast(version, 5, 12) != want {
			t.Errorf("%q is at least 5.12: %v", version, !want)
		}
	}
}
