package images_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// pulling returns what an event tells of a pull, nil when that is nothing.
func pulling(e *agboxv1.SandboxEvent) *agboxv1.SandboxPhaseDetails {
	if p := e.GetSandboxPhase(); e.EventType == agboxv1.EventType_SANDBOX_PREPARING && p.Phase == "pull" {
		return p
	}
	return nil
}

// wantFailure awaits FAILED with the code and the words, and nothing left in Docker.
func wantFailure(t *testing.T, d *servertest.Daemon, id, code string, words ...string) {
	t.Helper()
	events := d.AwaitMatch(id, 0, servertest.CreateEnded)
	failed := events[len(events)-1].GetSandboxPhase()
	if failed.ErrorCode != code {
		t.Errorf("FAILED says %v, want %s", failed, code)
	}
	for _, word := range words {
		if !strings.Contains(failed.ErrorMessage, word) {
			t.Errorf("FAILED does not say %q: %v", word, failed)
		}
	}
	dockertest.Leftovers(t, d.Engine, id)
}

// TestPull: a client that waits for READY sees how far the pull is.
func TestPull(t *testing.T) {
	t.Parallel()
	api, registry := dockertest.Engine(t), dockertest.NewRegistry(t, false)
	ref, _ := registry.Push(t, api, "agbox-test/pull:a", 3)
	d := servertest.Start(t)
	// A slow line, until the client has seen the pull move.
	moving := make(chan struct{})
	registry.Pieces(100, func(r *http.Request) bool {
		select {
		case <-moving:
		case <-time.After(100 * time.Millisecond):
		case <-r.Context().Done():
			return false
		}
		return true
	})
	id := servertest.Accepted(t, d, &agboxv1.CreateSpec{Image: ref})
	moved := false
	events := d.AwaitMatch(id, 0, func(e *agboxv1.SandboxEvent) bool {
		if p := pulling(e); !moved && p.GetBytesDone() > 0 && p.BytesDone < p.BytesTotal {
			moved = true
			close(moving)
		}
		return servertest.CreateEnded(e)
	})
	if !moved {
		t.Error("nothing was told in the midst of the pull")
	}
	if first, last := events[1].GetSandboxPhase(), events[len(events)-1]; first.GetPhase() != "materialize" || last.EventType != agboxv1.EventType_SANDBOX_READY {
		t.Errorf("from the first to the last it was told %v", events)
	}
	var before *agboxv1.SandboxPhaseDetails
	for _, e := range events[2 : len(events)-1] {
		p := pulling(e)
		if p == nil || p.Image != ref || p.BytesDone > p.BytesTotal || p.BytesDone < before.GetBytesDone() || p.BytesTotal < before.GetBytesTotal() {
			t.Fatalf("%v follows %v", e, before)
		}
		before = p
	}
	if before.GetBytesDone() != before.GetBytesTotal() || before.GetBytesTotal() < 3*dockertest.LayerSize {
		t.Errorf("before READY it was told %v, want all of 3 layers of %d bytes", before, dockertest.LayerSize)
	}

	asked := registry.Requests.Load()
	second := d.Create(&agboxv1.CreateSpec{Image: ref})
	if got := servertest.Kinds(d.Await(second, agboxv1.EventType_SANDBOX_READY)); got != "ACCEPTED PREPARING READY" {
		t.Errorf("with the image there it was told %s", got)
	}
	if registry.Requests.Load() != asked {
		t.Error("with the image there the registry was asked")
	}
	d.Delete(id)
	d.Delete(second)
}

// TestPullOnce: whoever needs an image that is being pulled waits for that pull.
func TestPullOnce(t *testing.T) {
	t.Parallel()
	api, registry := dockertest.Engine(t), dockertest.NewRegistry(t, false)
	ref, _ := registry.Push(t, api, "agbox-test/once:a", 2)
	d := servertest.Start(t)
	release, _ := registry.Halve()
	resolved, blobs := registry.Resolved.Load(), registry.Blobs.Load()
	ids := make([]string, 5)
	for i := range ids {
		ids[i] = servertest.Accepted(t, d, &agboxv1.CreateSpec{Image: ref})
	}
	for _, id := range ids {
		d.AwaitMatch(id, 0, func(e *agboxv1.SandboxEvent) bool { return pulling(e) != nil })
	}
	close(release)
	for _, id := range ids {
		d.Await(id, agboxv1.EventType_SANDBOX_READY)
		d.Delete(id)
	}
	if pulls := registry.Resolved.Load() - resolved; pulls != 1 {
		t.Errorf("%d sandboxes had %d pulls made", len(ids), pulls)
	}
	if fetched := registry.Blobs.Load() - blobs; fetched != 3 {
		t.Errorf("%d blobs were fetched, want 2 layers and a configuration", fetched)
	}
}

// TestPullNotFound: a tag that the registry does not have, and an image that it has and must not be asked for.
func TestPullNotFound(t *testing.T) {
	t.Parallel()
	api, registry := dockertest.Engine(t), dockertest.NewRegistry(t, false)
	ref, _ := registry.Push(t, api, "agbox-test/found:a", 1)
	d := servertest.Start(t)
	missing := strings.TrimSuffix(ref, "a") + "b"
	wantFailure(t, d, servertest.Accepted(t, d, &agboxv1.CreateSpec{Image: missing}), "IMAGE_NOT_FOUND", missing, "check name and tag at "+registry.Host)
	asked := registry.Requests.Load()
	wantFailure(t, d, servertest.Accepted(t, d, &agboxv1.CreateSpec{Image: ref, PullPolicy: "never"}), "IMAGE_NOT_FOUND",
		ref, "pull policy is never", "docker pull "+ref)
	if registry.Requests.Load() != asked {
		t.Error("the registry was asked though the policy is never")
	}
}

// TestPullAlways: a tag that has moved is followed by those who ask for it, and by nobody else.
func TestPullAlways(t *testing.T) {
	t.Parallel()
	api, registry := dockertest.Engine(t), dockertest.NewRegistry(t, false)
	ref, old := registry.Push(t, api, "agbox-test/always:a", 1)
	t.Cleanup(func() { dockertest.RemoveImage(t, api, old) })
	d := servertest.Start(t)
	made := func(policy, want string) {
		t.Helper()
		id := d.Create(&agboxv1.CreateSpec{Image: ref, PullPolicy: policy})
		found, err := api.ContainerInspect(t.Context(), "agbox-primary-"+id)
		if err != nil {
			t.Fatal(err)
		}
		if found.Image != want {
			t.Errorf("pull policy %q made it of %s, want %s", policy, found.Image, want)
		}
		d.Delete(id)
	}
	made("always", old)
	kept := ref + "-kept"
	t.Cleanup(func() { dockertest.RemoveImage(t, api, kept) })
	if err := api.ImageTag(t.Context(), ref, kept); err != nil {
		t.Fatal(err)
	}
	_, moved := registry.Push(t, api, "agbox-test/always:a", 1)
	if err := api.ImageTag(t.Context(), kept, ref); err != nil {
		t.Fatal(err)
	}
	made("missing", old)
	made("always", moved)
	made("missing", moved)
}

// TestPullPrivate: the registry wants to know who asks.
func TestPullPrivate(t *testing.T) {
	api, registry := dockertest.Engine(t), dockertest.NewRegistry(t, true)
	ref, _ := registry.Push(t, api, "agbox-test/private:a", 1)
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	d := servertest.Start(t)
	const wrong = "wrong-horse"
	login := func(password string) {
		auth := base64.StdEncoding.EncodeToString([]byte(dockertest.RegistryUser + ":" + password))
		text := fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, registry.Host, auth)
		if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	denied := func(words ...string) {
		t.Helper()
		id := servertest.Accepted(t, d, &agboxv1.CreateSpec{Image: ref})
		wantFailure(t, d, id, "IMAGE_PULL_DENIED", slices.Concat(words, []string{ref, "docker login " + registry.Host})...)
		log := fmt.Sprint(d.Delete(id))
		for _, secret := range []string{wrong, base64.StdEncoding.EncodeToString([]byte(dockertest.RegistryUser + ":" + wrong))} {
			if strings.Contains(log, secret) {
				t.Errorf("%s is told: %s", secret, log)
			}
		}
	}
	denied("there are none for it in " + filepath.Join(dir, "config.json"))
	login(wrong)
	denied("the credentials of " + filepath.Join(dir, "config.json"))
	login(dockertest.RegistryPassword)
	d.Delete(d.Create(&agboxv1.CreateSpec{Image: ref}))
}
