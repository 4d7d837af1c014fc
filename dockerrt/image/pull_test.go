package image_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dockerimage "github.com/docker/docker/api/types/image"

	"github.com/agbox-dev/agbox/dockerrt/image"
	"github.com/agbox-dev/agbox/test/dockertest"
)

func TestPull(t *testing.T) {
	t.Parallel()
	api, h := dockertest.Engine(t), dockertest.NewRegistry(t, false)
	ref, id := h.Push(t, api, "agbox-test/pull:a", 3)
	release, _ := h.Halve()
	s := newStore(t, api, "")
	s.ReportAll()

	var reports []image.Progress
	begun := false
	found, err := s.Ensure(patient(t), ref, "", func(p image.Progress) {
		reports = append(reports, p)
		if !begun && 0 < p.Done && p.Done < p.Total {
			begun = true
			close(release)
		}
	})
	check(t, err)
	if found.ID != id {
		t.Errorf("got image %s, want %s", found.ID, id)
	}
	if first := reports[0]; first != (image.Progress{Image: ref}) {
		t.Errorf("the first report is %+v", first)
	}
	var before image.Progress
	for _, p := range reports {
		if p.Done < before.Done || p.Total < before.Total || p.Layers < before.Layers || p.LayersDone < before.LayersDone || p.Done > p.Total {
			t.Errorf("%+v follows %+v", p, before)
		}
		before = p
	}
	if last := reports[len(reports)-1]; last.Done != last.Total || last.Total < 3*dockertest.LayerSize || last.Layers != 3 || last.LayersDone != 3 {
		t.Errorf("the last report is %+v, want all of 3 layers of %d bytes", last, dockertest.LayerSize)
	}

	asked := h.Requests.Load()
	found, err = s.Ensure(patient(t), ref, image.Missing, func(p image.Progress) { t.Errorf("report %+v without a pull", p) })
	if err != nil || found.ID != id || h.Requests.Load() != asked {
		t.Errorf("an image that is there: %s, %v, %d requests; want %s and none", found.ID, err, h.Requests.Load()-asked, id)
	}
}

type outcome struct {
	found dockerimage.InspectResponse
	err   error
}

// ensure begins an Ensure, and returns when it waits for a pull.
func ensure(t *testing.T, ctx context.Context, s *image.Store, ref string) <-chan outcome {
	t.Helper()
	waits, result := make(chan struct{}, 1), make(chan outcome, 1)
	go func() {
		found, err := s.Ensure(ctx, ref, image.Missing, func(image.Progress) {
			select {
			case waits <- struct{}{}:
			default:
			}
		})
		result <- outcome{found, err}
	}()
	receive(t, waits, "report")
	return result
}

func TestShared(t *testing.T) {
	t.Parallel()
	api, h := dockertest.Engine(t), dockertest.NewRegistry(t, false)
	ref, id := h.Push(t, api, "agbox-test/shared:a", 1)
	s := newStore(t, api, "")
	release, begun := h.Halve()
	before := h.Resolved.Load()
	first := ensure(t, patient(t), s, ref)
	receive(t, begun, "layer")
	second := ensure(t, patient(t), s, ref)
	close(release)
	for _, waiter := range []<-chan outcome{first, second} {
		if o := receive(t, waiter, "image"); o.err != nil || o.found.ID != id {
			t.Errorf("got %s, %v, want %s", o.found.ID, o.err, id)
		}
	}
	if pulls := h.Resolved.Load() - before; pulls != 1 {
		t.Errorf("%d pulls for two that wait", pulls)
	}
}

func TestGiveUp(t *testing.T) {
	t.Parallel()
	api, h := dockertest.Engine(t), dockertest.NewRegistry(t, false)
	ref, id := h.Push(t, api, "agbox-test/giveup:a", 1)
	release, begun := h.Halve()
	s := newStore(t, api, "")

	impatient, cancel := context.WithCancel(patient(t))
	first := ensure(t, impatient, s, ref)
	receive(t, begun, "layer")
	second := ensure(t, patient(t), s, ref)
	cancel()
	if o := receive(t, first, "end"); !errors.Is(o.err, context.Canceled) {
		t.Errorf("the one who gave up got %v", o.err)
	}
	close(release)
	if o := receive(t, second, "image"); o.err != nil || o.found.ID != id {
		t.Errorf("the one who stayed got %s, %v, want %s", o.found.ID, o.err, id)
	}
	if len(begun) > 0 {
		t.Error("the pull began again")
	}
}

func TestNobodyWaits(t *testing.T) {
	t.Parallel()
	api, h := dockertest.Engine(t), dockertest.NewRegistry(t, false)
	ref, id := h.Push(t, api, "agbox-test/nobody:a", 1)
	release, begun := h.Halve()
	s := newStore(t, api, "")

	impatient, cancel := context.WithCancel(patient(t))
	only := ensure(t, impatient, s, ref)
	receive(t, begun, "layer")
	cancel()
	if o := receive(t, only, "end"); !errors.Is(o.err, context.Canceled) {
		t.Errorf("got %v", o.err)
	}
	close(release)
	found, err := s.Ensure(patient(t), ref, image.Missing, nil)
	if err != nil || found.ID != id {
		t.Errorf("the next pull: %s, %v, want %s", found.ID, err, id)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	api, h := dockertest.Engine(t), dockertest.NewRegistry(t, false)
	ref, _ := h.Push(t, api, "agbox-test/close:a", 1)
	_, begun := h.Halve()
	s := newStore(t, api, "")
	waiter := ensure(t, patient(t), s, ref)
	receive(t, begun, "layer")
	s.Close()
	if o := receive(t, waiter, "end"); !errors.Is(o.err, image.ErrClosed) {
		t.Errorf("got %v, want %v", o.err, image.ErrClosed)
	}
	if _, err := s.Ensure(patient(t), ref, image.Missing, nil); !errors.Is(err, image.ErrClosed) {
		t.Errorf("a closed Store: %v, want %v", err, image.ErrClosed)
	}
}

func TestStall(t *testing.T) {
	t.Parallel()
	api, h := dockertest.Engine(t), dockertest.NewRegistry(t, false)
	ref, id := h.Push(t, api, "agbox-test/stall:a", 1)
	release, begun := h.Halve()
	s := newStore(t, api, "")
	s.SetTimes(3*time.Second, 0)
	_, err := s.Ensure(patient(t), ref, image.Missing, nil)
	wantError(t, err, image.ErrStalled, "IMAGE_PULL_STALLED", ref, h.Host, "3s", "bytes")
	receive(t, begun, "layer")
	close(release)
	found, err := s.Ensure(patient(t), ref, image.Missing, nil)
	if err != nil || found.ID != id {
		t.Errorf("the next pull: %s, %v, want %s", found.ID, err, id)
	}
}

func TestNotThere(t *testing.T) {
	t.Parallel()
	api, h := dockertest.Engine(t), dockertest.NewRegistry(t, false)
	ref, id := h.Push(t, api, "agbox-test/denied:a", 1)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	check(t, closed.Close())
	nobody := closed.Addr().String() + "/agbox-test/x:a"
	digest := "sha256:" + strings.Repeat("0", 64)
	s := newStore(t, api, "")
	for _, c := range []struct {
		name, ref string
		policy    image.Policy
		kind      error
		code      string
		says      []string
	}{
		{"tag", h.Host + "/agbox-test/denied:b", "", image.ErrNotFound, "IMAGE_NOT_FOUND", []string{"denied:b", "tag at " + h.Host, "docker load"}},
		{"name", h.Host + "/agbox-test/other", "", image.ErrNotFound, "IMAGE_NOT_FOUND", []string{"other:latest"}},
		{"digest", h.Host + "/agbox-test/denied@" + digest, "", image.ErrNotFound, "IMAGE_NOT_FOUND", []string{digest}},
		{"never", ref, image.Never, image.ErrNotFound, "IMAGE_NOT_FOUND", []string{ref, "policy is never", "docker pull " + ref}},
		{"id", digest, image.Always, image.ErrNotFound, "IMAGE_NOT_FOUND", []string{digest, "docker load"}},
		{"nobody listens", nobody, "", image.ErrUnreachableRegistry, "IMAGE_REGISTRY_UNREACHABLE", []string{nobody, "refused", "reaches it"}},
		{"no host", "agbox-test.invalid/x", "", image.ErrUnreachableRegistry, "IMAGE_REGISTRY_UNREACHABLE", []string{"agbox-test.invalid"}},
		{"reference", "../Escape", "", image.ErrFailed, "IMAGE_PULL_FAILED", []string{`"../Escape"`, "name:tag"}},
		{"policy", ref, "sometimes", image.ErrFailed, "IMAGE_PULL_FAILED", []string{`"sometimes"`, "always"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.Ensure(patient(t), c.ref, c.policy, nil)
			wantError(t, err, c.kind, c.code, c.says...)
		})
	}

	_, err = s.Ensure(patient(t), ref, "", nil)
	check(t, err)
	asked := h.Requests.Load()
	for _, named := range []struct {
		ref    string
		policy image.Policy
	}{{ref, image.Never}, {id, image.Never}, {id, image.Always}, {strings.TrimPrefix(id, "sha256:")[:12], ""}} {
		if found, err := s.Ensure(patient(t), named.ref, named.policy, nil); err != nil || found.ID != id {
			t.Errorf("%s %s: %s, %v, want %s", named.policy, named.ref, found.ID, err, id)
		}
	}
	if h.Requests.Load() != asked {
		t.Error("the registry was asked")
	}
}

func TestAlways(t *testing.T) {
	t.Parallel()
	api, h := dockertest.Engine(t), dockertest.NewRegistry(t, false)
	ref, id := h.Push(t, api, "agbox-test/always:a", 1)
	s := newStore(t, api, "")
	found, err := s.Ensure(patient(t), ref, image.Always, nil)
	if err != nil || found.ID != id {
		t.Fatalf("got %s, %v, want %s", found.ID, err, id)
	}
	digest := found.RepoDigests[0]
	check(t, api.ImageTag(t.Context(), ref, ref+"-kept"))
	t.Cleanup(func() { dockertest.RemoveImage(t, api, ref+"-kept") })
	_, moved := h.Push(t, api, "agbox-test/always:a", 1)
	check(t, api.ImageTag(t.Context(), ref+"-kept", ref))

	for _, c := range []struct {
		ref    string
		policy image.Policy
		want   string
	}{
		{ref, image.Missing, id},
		{ref, image.Always, moved},
		{digest, image.Always, id},
		{strings.Replace(digest, "@", ":a@", 1), image.Missing, id},
	} {
		if found, err := s.Ensure(patient(t), c.ref, c.policy, nil); err != nil || found.ID != c.want {
			t.Errorf("%s %s: %s, %v, want %s", c.policy, c.ref, found.ID, err, c.want)
		}
	}

	dockertest.RemoveImage(t, api, ref+"-kept")
	dockertest.RemoveImage(t, api, digest)
	if found, err := s.Ensure(patient(t), strings.Replace(digest, "@", ":a@", 1), image.Missing, nil); err != nil || found.ID != id {
		t.Errorf("pull by tag and digest: %s, %v, want %s", found.ID, err, id)
	}
	dockertest.RemoveImage(t, api, digest)
}

func TestAlwaysUnreachable(t *testing.T) {
	t.Parallel()
	api := dockertest.Engine(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	check(t, closed.Close())
	ref := closed.Addr().String() + "/agbox-test/here:a"
	t.Cleanup(func() { dockertest.RemoveImage(t, api, ref) })
	check(t, dockertest.Import(t.Context(), api, ref, dockertest.RandomLayer(t, "0"), nil))
	s := newStore(t, api, "")
	_, err = s.Ensure(patient(t), ref, image.Missing, nil)
	check(t, err)
	_, err = s.Ensure(patient(t), ref, image.Always, nil)
	wantError(t, err, image.ErrUnreachableRegistry, "IMAGE_REGISTRY_UNREACHABLE", ref)
}

// The engine asks again for a layer that ends early, after 5 s.
func TestTornLayer(t *testing.T) {
	t.Parallel()
	api, h := dockertest.Engine(t), dockertest.NewRegistry(t, false)
	ref, id := h.Push(t, api, "agbox-test/torn:a", 1)
	var times atomic.Int64
	h.Pieces(2, func(*http.Request) bool { return times.Add(1) > 1 })
	s := newStore(t, api, "")
	s.ReportAll()
	var before image.Progress
	found, err := s.Ensure(patient(t), ref, image.Missing, func(p image.Progress) {
		if p.Done < before.Done || p.Total < before.Total || p.Done > p.Total {
			t.Errorf("%+v follows %+v", p, before)
		}
		before = p
	})
	if err != nil || found.ID != id {
		t.Errorf("got %s, %v, want %s", found.ID, err, id)
	}
	if times.Load() == 0 {
		t.Error("no layer was cut")
	}
}
