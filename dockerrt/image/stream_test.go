package image_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/dockerrt/image"
)

// script is an engine without the image, whose pull answers what the script writes. It stands in where a real one
// cannot be had: minutes of silence, words of other versions, a connection that breaks.
type script func(r *http.Request, w io.Writer) error

const scriptID = "sha256:1"

func (s script) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(status int, body io.ReadCloser) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
	}
	switch {
	case r.Method == http.MethodPost:
		read, write := io.Pipe()
		go func() { write.CloseWithError(s(r, write)) }()
		return answer(http.StatusOK, read)
	case strings.Contains(r.URL.Path, "docker.io/library/x:pulled"): // asked with its full name only after a pull
		return answer(http.StatusOK, io.NopCloser(strings.NewReader(`{"Id":"`+scriptID+`"}`)))
	}
	return answer(http.StatusNotFound, io.NopCloser(strings.NewReader(`{"message":"no such image"}`)))
}

func (s script) api(t *testing.T) *client.Client {
	t.Helper()
	api, err := client.NewClientWithOpts(client.WithHTTPClient(&http.Client{Transport: s}), client.WithVersion("1.41"))
	check(t, err)
	return api
}

// store is for synctest, where it has to be closed before the bubble ends.
func (s script) store(t *testing.T) *image.Store {
	return image.New(s.api(t), t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil)))
}

func say(w io.Writer, status, detail string) {
	fmt.Fprintf(w, `{"id":"abc","status":%q,"progressDetail":{%s}}`+"\n", status, detail)
}

func TestStallBound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		say  func(w io.Writer, second int)
		want time.Duration // until ErrStalled; 0 where it never stalls
	}{
		{"silence", func(io.Writer, int) {}, 60 * time.Second},
		{"the same bytes again", func(w io.Writer, _ int) { say(w, "Downloading", `"current":5,"total":9`) }, 61 * time.Second},
		{"a countdown", func(w io.Writer, n int) { say(w, fmt.Sprintf("Retrying in %d seconds", 400-n), "") }, 60 * time.Second},
		{"bytes for a while", func(w io.Writer, n int) {
			say(w, "Downloading", fmt.Sprintf(`"current":%d,"total":999`, min(n, 100)))
		}, 160 * time.Second},
		{"bytes every 50 s", func(w io.Writer, n int) {
			say(w, "Downloading", fmt.Sprintf(`"current":%d,"total":999`, n/50))
		}, 0},
		{"seconds of unpacking", func(w io.Writer, n int) { say(w, "Extracting", fmt.Sprintf(`"current":%d,"units":"s"`, n)) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := script(func(r *http.Request, w io.Writer) error {
					for second := 1; second <= 300; second++ {
						select {
						case <-time.After(time.Second):
							c.say(w, second)
						case <-r.Context().Done():
							return r.Context().Err()
						}
					}
					return nil
				}).store(t)
				defer s.Close()
				began := time.Now()
				_, err := s.Ensure(t.Context(), "x:missing", "", nil)
				took := time.Since(began)
				switch {
				case c.want == 0:
					if errors.Is(err, image.ErrStalled) || took != 300*time.Second {
						t.Errorf("after %s: %v", took, err)
					}
				case took != c.want:
					t.Errorf("ended after %s, want %s", took, c.want)
					fallthrough
				default:
					wantError(t, err, image.ErrStalled, "IMAGE_PULL_STALLED", "docker.io", "1m0s")
				}
			})
		})
	}
}

// The request to the engine ends when nobody waits, and who comes then does not wait for its end.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, ended, leave := true, false, make(chan struct{})
		s := script(func(r *http.Request, _ io.Writer) error {
			if !first {
				return nil
			}
			first = false
			<-r.Context().Done()
			ended = true
			<-leave
			return r.Context().Err()
		}).store(t)
		defer s.Close()
		defer close(leave)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		if _, err := s.Ensure(ctx, "x:pulled", "", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if !ended {
			t.Error("the request goes on")
		}
		reports := 0
		found, err := s.Ensure(t.Context(), "x:pulled", "", func(image.Progress) { reports++ })
		if err != nil || found.ID != scriptID || reports != 1 {
			t.Errorf("who came later got %s, %v and %d reports of one state", found.ID, err, reports)
		}
	})
}

func TestReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := script(func(r *http.Request, w io.Writer) error {
			for tenth := 1; tenth <= 100; tenth++ {
				time.Sleep(100 * time.Millisecond)
				say(w, "Downloading", fmt.Sprintf(`"current":%d,"total":100`, tenth-1))
			}
			time.Sleep(50 * time.Millisecond)
			return nil
		}).store(t)
		defer s.Close()
		began := time.Now()
		got := ""
		report := func(p image.Progress) { got += fmt.Sprintf("%s %d/%d\n", time.Since(began), p.Done, p.Total) }
		late := make(chan string)
		go func() {
			time.Sleep(3550 * time.Millisecond)
			joined := ""
			s.Ensure(t.Context(), "x:pulled", "", func(p image.Progress) { joined += fmt.Sprintf("%d ", p.Done) })
			late <- joined
		}()
		if found, err := s.Ensure(t.Context(), "x:pulled", "", report); err != nil || found.ID != scriptID {
			t.Errorf("got %s, %v", found.ID, err)
		}
		want := "0s 0/0\n1s 9/100\n2s 19/100\n3s 29/100\n4s 39/100\n5s 49/100\n6s 59/100\n7s 69/100\n8s 79/100\n9s 89/100\n10s 99/100\n10.05s 100/100\n"
		if got != want {
			t.Errorf("reports:\n%swant:\n%s", got, want)
		}
		if joined := <-late; joined != "34 39 49 59 69 79 89 99 100 " {
			t.Errorf("one who joined got %s", joined)
		}
	})
}

// What engines answer, and what a person makes of it.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ref, words string
		kind       error
		code       string
	}{
		{"x", "write /var/lib/docker/tmp/GetImageBlob1: no space left on device", image.ErrNoSpace, "IMAGE_NO_SPACE"},
		{"x", "toomanyrequests: You have reached your pull rate limit.", image.ErrDenied, "IMAGE_PULL_DENIED"},
		{"x", "pull access denied for x, repository does not exist or may require 'docker login': denied: requested access to the resource is denied", image.ErrDenied, "IMAGE_PULL_DENIED"},
		{"x", `failed to resolve reference "docker.io/library/x:latest": pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials`, image.ErrDenied, "IMAGE_PULL_DENIED"},
		{"x", `failed to resolve reference "docker.io/library/x:latest": docker.io/library/x:latest: not found`, image.ErrNotFound, "IMAGE_NOT_FOUND"},
		{"x:unauthorized", `failed to resolve reference "docker.io/library/x:unauthorized": docker.io/library/x:unauthorized: not found`, image.ErrNotFound, "IMAGE_NOT_FOUND"},
		{"host:5000/x", `Get "https://host:5000/v2/": http: server gave HTTP response to HTTPS client`, image.ErrUnreachableRegistry, "IMAGE_REGISTRY_UNREACHABLE"},
		{"host/x", `Get "https://host/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority`, image.ErrUnreachableRegistry, "IMAGE_REGISTRY_UNREACHABLE"},
		{"host/x", `Get "https://host/v2/": net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)`, image.ErrUnreachableRegistry, "IMAGE_REGISTRY_UNREACHABLE"},
		{"x", "no matching manifest for linux/amd64 in the manifest list entries", image.ErrFailed, "IMAGE_PULL_FAILED"},
		// The engine's own connection, not ours to it.
		{"x", "unexpected EOF", image.ErrFailed, "IMAGE_PULL_FAILED"},
	} {
		s := script(func(_ *http.Request, w io.Writer) error {
			fmt.Fprintf(w, `{"errorDetail":{"message":%q},"error":%q}`, c.words, c.words)
			return nil
		}).store(t)
		_, err := s.Ensure(t.Context(), c.ref, "", nil)
		wantError(t, err, c.kind, c.code, c.ref, c.words)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%v looks like the loss of the engine", err)
		}
		s.Close()
	}
}

func TestEngineLost(t *testing.T) {
	t.Parallel()
	torn := script(func(_ *http.Request, w io.Writer) error {
		say(w, "Waiting", "")
		return io.ErrUnexpectedEOF
	}).store(t)
	defer torn.Close()
	nobody, err := client.NewClientWithOpts(client.WithHost("unix://" + t.TempDir() + "/none"))
	check(t, err)
	for _, c := range []struct {
		name  string
		store *image.Store
		is    func(error) bool
	}{
		{"in the midst", torn, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"before", newStore(t, nobody, ""), client.IsErrConnectionFailed},
	} {
		for _, policy := range []image.Policy{image.Missing, image.Always} {
			_, err := c.store.Ensure(t.Context(), "x", policy, nil)
			if _, coded := errors.AsType[interface {
				error
				ErrorCode() string
			}](err); err == nil || !c.is(err) || coded {
				t.Errorf("%s, %s: got %v, which does not tell the loss of the engine", c.name, policy, err)
			}
		}
	}
}
