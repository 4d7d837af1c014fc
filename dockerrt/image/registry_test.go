package image_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/client"
	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"

	"github.com/agbox-dev/agbox/dockerrt/dockertest"
	"github.com/agbox-dev/agbox/dockerrt/image"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	user, password = "alice", "correct-horse-battery"
	// patience ends what hangs; nothing here takes a tenth of it.
	patience = 90 * time.Second
	// layerSize is enough for the engine to report in the midst of it, and cannot be compressed.
	layerSize = 2 << 20
)

// hub is Debian's docker-registry behind a proxy on 127.0.0.1, which engines speak plain HTTP to.
type hub struct {
	host     string
	requests atomic.Int64
	resolved atomic.Int64 // requests that ask what a tag means: one in each pull
	// blobs, when set, may answer a GET of a blob by itself.
	blobs atomic.Pointer[func(w http.ResponseWriter, r *http.Request, next http.Handler)]
}

// newHub starts a registry that lets everybody in, or alice only.
func newHub(t *testing.T, private bool) *hub {
	t.Helper()
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		t.Fatalf("no docker-registry: apt-get install docker-registry, or run .ci/apt docker-registry: %v", err)
	}
	dir := t.TempDir()
	socket, conf := filepath.Join(dir, "s"), filepath.Join(dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: info}\nstorage: {filesystem: {rootdirectory: %s}}\n"+
		"http: {net: unix, addr: %s, relativeurls: true, secret: test}\n", filepath.Join(dir, "data"), socket)
	if private {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		check(t, err)
		check(t, os.WriteFile(filepath.Join(dir, "htpasswd"), fmt.Appendf(nil, "%s:%s\n", user, hash), 0o600))
		text += fmt.Sprintf("auth: {htpasswd: {realm: test, path: %s}}\n", filepath.Join(dir, "htpasswd"))
	}
	check(t, os.WriteFile(conf, []byte(text), 0o600))
	serve(t, exec.Command(program, "serve", conf), "listening on")

	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	registry := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "registry", r.In.Host
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // requests that a test cuts off
	}
	h := new(hub)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.requests.Add(1)
		if r.Method == http.MethodHead && strings.Contains(r.URL.Path, "/manifests/") {
			h.resolved.Add(1)
		}
		if blobs := h.blobs.Load(); blobs != nil && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			(*blobs)(w, r, registry)
			return
		}
		registry.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.CloseClientConnections() // an engine of 20.10 holds on to a layer that it gave up
		front.Close()
	})
	h.host = front.Listener.Addr().String()
	return h
}

// serve runs a program until t ends and returns when it has written a line with ready.
func serve(t *testing.T, cmd *exec.Cmd, ready string) {
	t.Helper()
	output, write, err := os.Pipe()
	check(t, err)
	cmd.Stdout, cmd.Stderr = write, write
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(t, cmd.Start())
	write.Close()
	found, ended := make(chan bool, 1), make(chan struct{})
	var said bytes.Buffer
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if said.Len() < 1<<16 {
				fmt.Fprintln(&said, lines.Text())
			}
			if strings.Contains(lines.Text(), ready) {
				select {
				case found <- true:
				default:
				}
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		<-ended
		output.Close()
	})
	select {
	case <-found:
	case <-ended:
		t.Fatalf("%s ended: %s", cmd, &said)
	}
}

// push makes an image of as many layers of random bytes, pushes it under name and removes it here.
func (h *hub) push(t *testing.T, api *client.Client, name string, layers int) (ref, id string) {
	t.Helper()
	ref = h.host + "/" + name
	t.Cleanup(func() { remove(t, api, ref) })
	check(t, dockertest.Import(t.Context(), api, ref, randomFile(t, "0"), nil))
	for i := 1; i < layers; i++ {
		made, err := api.ContainerCreate(t.Context(), &container.Config{Image: ref, Cmd: []string{"none"}}, nil, nil, nil, "")
		check(t, err)
		check(t, api.CopyToContainer(t.Context(), made.ID, "/", randomFile(t, fmt.Sprint(i)), container.CopyToContainerOptions{}))
		_, err = api.ContainerCommit(t.Context(), made.ID, container.CommitOptions{Reference: ref})
		check(t, err)
		check(t, api.ContainerRemove(t.Context(), made.ID, container.RemoveOptions{}))
	}
	found, err := api.ImageInspect(t.Context(), ref)
	check(t, err)
	header, err := registry.EncodeAuthConfig(registry.AuthConfig{Username: user, Password: password})
	check(t, err)
	body, err := api.ImagePush(t.Context(), ref, dockerimage.PushOptions{RegistryAuth: header})
	check(t, err)
	defer body.Close()
	for messages := json.NewDecoder(body); ; {
		var m struct{ Error string }
		if err := messages.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil || m.Error != "" {
			t.Fatalf("push %s: %v %s", ref, err, m.Error)
		}
	}
	remove(t, api, ref)
	return ref, found.ID
}

// remove takes the image and its layers off the engine, if it is there.
func remove(t *testing.T, api *client.Client, ref string) {
	t.Helper()
	_, err := api.ImageRemove(context.WithoutCancel(t.Context()), ref, dockerimage.RemoveOptions{PruneChildren: true})
	if err != nil && !cerrdefs.IsNotFound(err) {
		t.Error(err)
	}
}

func randomFile(t *testing.T, name string) io.Reader {
	t.Helper()
	body := make([]byte, layerSize)
	rand.Read(body)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	check(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: layerSize, Format: tar.FormatUSTAR}))
	_, err := w.Write(body)
	check(t, err)
	check(t, w.Close())
	return &out
}

// halve has the registry stop in the midst of each layer until the channel that it returns is closed. Each such request
// sends on begun when the first half is out.
func (h *hub) halve() (release, begun chan struct{}) {
	release, begun = make(chan struct{}), make(chan struct{}, 16)
	h.midway(func(r *http.Request) bool {
		begun <- struct{}{}
		select {
		case <-release:
			return true
		case <-r.Context().Done():
			return false
		}
	})
	return release, begun
}

// midway asks goOn in the midst of each whole layer. On false the connection is cut.
func (h *hub) midway(goOn func(*http.Request) bool) {
	handle := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		whole := httptest.NewRecorder()
		next.ServeHTTP(whole, r)
		if whole.Code != http.StatusOK || whole.Body.Len() < layerSize {
			next.ServeHTTP(w, r)
			return
		}
		for key, values := range whole.Header() {
			w.Header()[key] = values
		}
		body := whole.Body.Bytes()
		w.Write(body[:len(body)/2])
		w.(http.Flusher).Flush()
		if !goOn(r) {
			panic(http.ErrAbortHandler)
		}
		w.Write(body[len(body)/2:])
	}
	h.blobs.Store(&handle)
}

// newStore is a Store with the credentials of a config.json, none for "".
func newStore(t *testing.T, api *client.Client, config string) *image.Store {
	t.Helper()
	dir := t.TempDir()
	if config != "" {
		check(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
	}
	s := image.New(api, dir, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(s.Close)
	return s
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func receive[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-patient(t).Done():
		t.Fatalf("no %s within %s", what, patience)
	}
	return v
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError checks an error's kind, its code and what a person reads.
func wantError(t *testing.T, err, kind error, code string, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got error %v, want %v", err, kind)
	}
	coded, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err)
	if !ok || coded.ErrorCode() != code {
		t.Errorf("%v: want code %s", err, code)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	if strings.Contains(err.Error(), password) {
		t.Errorf("%q has the password in it", err)
	}
}
