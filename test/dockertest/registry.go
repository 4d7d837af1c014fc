package dockertest

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

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/client"
	"golang.org/x/crypto/bcrypt"

	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

const (
	// RegistryUser and RegistryPassword are whom a private Registry lets in.
	RegistryUser, RegistryPassword = "alice", "correct-horse-battery"
	// LayerSize is the size of each layer of a pushed image, in bytes: enough for the engine to report in the midst of it.
	LayerSize = 2 << 20
)

// Registry is Debian's docker-registry behind a proxy on 127.0.0.1, which engines speak plain HTTP to.
type Registry struct {
	Host     string       // address and port, the first part of a reference
	Requests atomic.Int64 // all
	Resolved atomic.Int64 // those that ask what a tag means: one in each pull
	Blobs    atomic.Int64 // those that fetch a layer or an image's configuration: in a pull one for each

	// layer, when set, answers a fetch of a blob.
	layer atomic.Pointer[func(w http.ResponseWriter, r *http.Request, next http.Handler)]
}

// NewRegistry starts an empty registry that lets everybody in or, private, only RegistryUser. It ends with t. Without
// docker-registry on this machine t is skipped as by Engine.
func NewRegistry(t testing.TB, private bool) *Registry {
	t.Helper()
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		skiplog.Skip(t, fmt.Sprintf("no docker-registry: %v; run .ci/apt docker-registry", err))
	}
	dir := t.TempDir()
	socket, conf := filepath.Join(dir, "s"), filepath.Join(dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: info}\nstorage: {filesystem: {rootdirectory: %s}}\n"+
		"http: {net: unix, addr: %s, relativeurls: true, secret: test}\n", filepath.Join(dir, "data"), socket)
	if private {
		hash, err := bcrypt.GenerateFromPassword([]byte(RegistryPassword), bcrypt.MinCost)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "htpasswd"), fmt.Appendf(nil, "%s:%s\n", RegistryUser, hash), 0o600))
		text += fmt.Sprintf("auth: {htpasswd: {realm: test, path: %s}}\n", filepath.Join(dir, "htpasswd"))
	}
	must(t, os.WriteFile(conf, []byte(text), 0o600))
	serve(t, exec.Command(program, "serve", conf), "listening on")

	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	behind := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "registry", r.In.Host
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // requests that a test cuts off
	}
	r := new(Registry)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.Requests.Add(1)
		switch {
		case request.Method == http.MethodHead && strings.Contains(request.URL.Path, "/manifests/"):
			r.Resolved.Add(1)
		case request.Method == http.MethodGet && strings.Contains(request.URL.Path, "/blobs/"):
			r.Blobs.Add(1)
			if layer := r.layer.Load(); layer != nil {
				(*layer)(w, request, behind)
				return
			}
		}
		behind.ServeHTTP(w, request)
	}))
	t.Cleanup(func() {
		front.CloseClientConnections() // an engine of 20.10 holds on to a layer that it gave up
		front.Close()
	})
	r.Host = front.Listener.Addr().String()
	return r
}

// serve runs a program until t ends and returns when it has written a line with ready.
func serve(t testing.TB, cmd *exec.Cmd, ready string) {
	t.Helper()
	output, write, err := os.Pipe()
	must(t, err)
	cmd.Stdout, cmd.Stderr = write, write
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
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

// Push makes an image of as many layers of random bytes, pushes it under name and removes it here. It returns its whole
// reference and its id. When t ends the engine has it no more.
func (r *Registry) Push(t testing.TB, cli *client.Client, name string, layers int) (ref, id string) {
	t.Helper()
	ref = r.Host + "/" + name
	t.Cleanup(func() { RemoveImage(t, cli, ref) })
	must(t, Import(t.Context(), cli, ref, RandomLayer(t, "0"), nil))
	for i := 1; i < layers; i++ {
		made, err := cli.ContainerCreate(t.Context(), &container.Config{Image: ref, Cmd: []string{"none"}}, nil, nil, nil, "")
		must(t, err)
		must(t, cli.CopyToContainer(t.Context(), made.ID, "/", RandomLayer(t, fmt.Sprint(i)), container.CopyToContainerOptions{}))
		_, err = cli.ContainerCommit(t.Context(), made.ID, container.CommitOptions{Reference: ref})
		must(t, err)
		must(t, cli.ContainerRemove(t.Context(), made.ID, container.RemoveOptions{}))
	}
	found, err := cli.ImageInspect(t.Context(), ref)
	must(t, err)
	header, err := registry.EncodeAuthConfig(registry.AuthConfig{Username: RegistryUser, Password: RegistryPassword})
	must(t, err)
	body, err := cli.ImagePush(t.Context(), ref, image.PushOptions{RegistryAuth: header})
	must(t, err)
	defer body.Close()
	for messages := json.NewDecoder(body); ; {
		var m struct{ Error string }
		if err := messages.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil || m.Error != "" {
			t.Fatalf("push %s: %v %s", ref, err, m.Error)
		}
	}
	RemoveImage(t, cli, ref)
	return ref, found.ID
}

// RemoveImage takes the image and its layers off the engine, if it is there.
func RemoveImage(t testing.TB, cli *client.Client, ref string) {
	t.Helper()
	// t's own context has ended when this runs from a cleanup.
	_, err := cli.ImageRemove(context.WithoutCancel(t.Context()), ref, image.RemoveOptions{PruneChildren: true})
	if err != nil && !cerrdefs.IsNotFound(err) {
		t.Error(err)
	}
}

// RandomLayer is the tar of one file of LayerSize bytes, which cannot be compressed.
func RandomLayer(t testing.TB, name string) io.Reader {
	t.Helper()
	body := make([]byte, LayerSize)
	rand.Read(body)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: LayerSize, Format: tar.FormatUSTAR}))
	_, err := w.Write(body)
	must(t, err)
	must(t, w.Close())
	return &out
}

// Halve has the registry stop in the midst of each layer until release is closed, which is the caller's to do. Each
// such request sends on begun when the first half is out; begun holds 16.
func (r *Registry) Halve() (release, begun chan struct{}) {
	release, begun = make(chan struct{}), make(chan struct{}, 16)
	r.Pieces(2, func(request *http.Request) bool {
		begun <- struct{}{}
		select {
		case <-release:
			return true
		case <-request.Context().Done():
			return false
		}
	})
	return release, begun
}

// Pieces has the registry send each whole layer in n pieces from now on. It asks goOn, from many goroutines, between
// two pieces; on false it cuts the connection.
func (r *Registry) Pieces(n int, goOn func(*http.Request) bool) {
	send := func(w http.ResponseWriter, request *http.Request, next http.Handler) {
		whole := httptest.NewRecorder()
		next.ServeHTTP(whole, request)
		if whole.Code != http.StatusOK || whole.Body.Len() < LayerSize {
			next.ServeHTTP(w, request)
			return
		}
		for key, values := range whole.Header() {
			w.Header()[key] = values
		}
		body := whole.Body.Bytes()
		for i := range n {
			if i > 0 && !goOn(request) {
				panic(http.ErrAbortHandler)
			}
			w.Write(body[i*len(body)/n : (i+1)*len(body)/n])
			w.(http.Flusher).Flush()
		}
	}
	r.layer.Store(&send)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
