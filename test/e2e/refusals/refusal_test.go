package refusals_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestForeignObjectsAreLeftAlone: a name that somebody else holds is a conflict, and what is theirs stays.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	ctx := context.Background()
	created, err := d.Engine.ContainerCreate(ctx, &container.Config{Image: d.Image}, nil, nil, nil, "agbox-primary-foreign-container")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Engine.ContainerRemove(ctx, created.ID, container.RemoveOptions{Force: true}) })
	net, err := d.Engine.NetworkCreate(ctx, "agbox-net-foreign-network", network.CreateOptions{
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: "10.216.0.0/28"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Engine.NetworkRemove(ctx, net.ID) })
	for id, words := range map[string]string{
		"foreign-container": "container agbox-primary-foreign-container, which no agboxd has made: choose another sandbox id",
		"foreign-network":   "network agbox-net-foreign-network, which no agboxd has made: choose another sandbox id",
	} {
		_, err := d.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: d.Image}})
		servertest.Refused(t, err, codes.AlreadyExists, "SANDBOX_CONFLICT", "", "name is taken by an object that is not ours", words)
	}
	if _, err := d.Engine.ContainerInspect(ctx, created.ID); err != nil {
		t.Errorf("the foreign container: %v", err)
	}
	if _, err := d.Engine.NetworkInspect(ctx, net.ID, network.InspectOptions{}); err != nil {
		t.Errorf("the foreign network: %v", err)
	}
}

// TestEngineInTrouble: an engine that fails, or is not there, is told apart from what the caller did wrong, and
// nothing is recorded.
func TestEngineInTrouble(t *testing.T) {
	const id = "engine-in-trouble"
	host, leave := servertest.Proxied(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, id) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintln(w, `{"message": "layer store is damaged"}`)
		return true
	})
	d := servertest.Start(t, func(c *dockerrt.Config) { c.Host = host })
	create := func() error {
		_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: d.Image}})
		return err
	}
	servertest.Refused(t, create(), codes.Internal, "INTERNAL", "", "agboxd failed: ", "container agbox-primary-"+id, "layer store is damaged", "see its log")
	leave()
	servertest.Refused(t, create(), codes.Unavailable, "DOCKER_UNAVAILABLE", "", "docker cannot be reached", "Is the docker daemon running?")
	if _, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id}); err == nil {
		t.Error("a refused create is there")
	}
}
