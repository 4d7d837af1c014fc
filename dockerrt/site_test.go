package dockerrt_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/chaos/proxy"
	"github.com/agbox-dev/agbox/test/dockertest"
)

const namespace = "io.github.1996fanrui.agents-sandbox."

// site is a directory and an engine behind a proxy, for one daemon after the other.
type site struct {
	t      *testing.T
	dir    string
	engine *client.Client
	proxy  *proxy.Proxy
	config dockerrt.Config
	// bases are images that snapshots may depend on.
	bases []string
	// process is the newest daemon's. It removes all sandboxes at the end of the test.
	process   *dockerrt.Docker
	mu        sync.Mutex
	sandboxes []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: dir, engine: dockertest.Engine(t)}
	if s.proxy, err = proxy.New(strings.TrimPrefix(s.engine.DaemonHost(), "unix://"), filepath.Join(dir, "p"), 1); err != nil {
		t.Fatal(err)
	}
	s.config = dockerrt.Config{
		Host: s.proxy.Host(), Instance: filepath.Base(dir), DataDir: dir, InitPath: dockertest.InitBinary(t),
		Pool: netip.MustParsePrefix("10.217.16.0/20"), SubnetBits: 28, CreateConcurrency: 1, StopGrace: time.Second, PID: os.Getpid(),
	}
	t.Cleanup(func() {
		var images []string
		for _, image := range s.images() {
			images = append(images, image.ID)
		}
		for _, image := range append(images, s.bases...) {
			if _, err := s.engine.ImageRemove(context.Background(), image, dockerimage.RemoveOptions{Force: true}); err != nil {
				t.Error(err)
			}
		}
		s.engine.Close()
		if err := errors.Join(s.proxy.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start is the daemon's next process.
func (s *site) start() *dockerrt.Docker {
	s.t.Helper()
	s.config.Started = s.config.Started.Add(time.Hour)
	d, err := dockerrt.New(s.t.Context(), s.config, slog.New(slog.NewTextHandler(s.t.Output(), nil)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.process = d
	s.t.Cleanup(func() {
		if s.process == d {
			s.removeAll()
		}
		d.Close()
	})
	return d
}

// removeAll has the newest process remove every sandbox.
func (s *site) removeAll() {
	for _, id := range s.sandboxes {
		if err := s.process.Remove(context.Background(), id); err != nil {
			s.t.Error(err)
		}
	}
}

// sandbox makes one that goes with the test.
func (s *site) sandbox(d *dockerrt.Docker, id string, spec *agboxv1.CreateSpec) {
	s.t.Helper()
	s.mu.Lock()
	s.sandboxes = append(s.sandboxes, id)
	s.mu.Unlock()
	if _, err := d.Create(s.t.Context(), id, "1", spec, ignore); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) images() []dockerimage.Summary {
	s.t.Helper()
	list, err := s.engine.ImageList(context.Background(), dockerimage.ListOptions{
		Filters: filters.NewArgs(filters.Arg("label", namespace+"snapshot-instance="+s.config.Instance))})
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

func (s *site) container(image, name string) string {
	s.t.Helper()
	made, err := s.engine.ContainerCreate(s.t.Context(), &container.Config{Image: image, Cmd: []string{"true"}}, nil, nil, nil, name)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		s.engine.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
	})
	return made.ID
}

// fault has the engine answer calls like these with an error.
func fault(calls string) proxy.Rule {
	return proxy.Rule{Path: regexp.MustCompile(calls), Phase: proxy.Before, Fault: proxy.Status(http.StatusInternalServerError, "no room")}
}

func (s *site) use(rules ...proxy.Rule) {
	s.t.Helper()
	if err := s.proxy.Use(rules...); err != nil {
		s.t.Fatal(err)
	}
}

// full is an image whose configuration has something in every field.
func (s *site) full() string {
	s.t.Helper()
	id := s.container(dockertest.TinyImage(s.t, s.engine, dockertest.Busybox), "")
	image, err := s.engine.ContainerCommit(s.t.Context(), id, container.CommitOptions{Config: &container.Config{StopSignal: "SIGUSR1", Shell: []string{"sh", "-c"}}, Changes: []string{
		`ENTRYPOINT ["sh", "-c", "exec \"$@\"", "--"]`, `CMD ["serve", "--all"]`, `ENV COLOUR=red SHAPE=round`, `EXPOSE 80/tcp 53/udp`,
		`USER 1000:1000`, `WORKDIR /home`, `LABEL a=b c=d`, `VOLUME /data`, `HEALTHCHECK --interval=5m CMD true`, `ONBUILD RUN true`,
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.bases = append(s.bases, image.ID)
	return image.ID
}
