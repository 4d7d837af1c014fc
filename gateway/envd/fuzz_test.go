package envd

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agbox-dev/agbox/gateway/route"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// nowhere is a daemon with one sandbox that refuses all that is done in it.
type nowhere struct{ grpc.ClientConnInterface }

func (nowhere) Invoke(_ context.Context, method string, _, reply any, _ ...grpc.CallOption) error {
	if box, ok := reply.(*agboxv1.GetSandboxResponse); ok {
		box.Sandbox = &agboxv1.SandboxHandle{State: agboxv1.SandboxState_SANDBOX_STATE_READY}
		return nil
	}
	return status.Error(codes.FailedPrecondition, "nothing is done")
}

func (nowhere) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.FailedPrecondition, "nothing is done")
}

func fuzzed(f *testing.F) *Handler {
	h := New(Config{
		Client: func(string) agboxv1.SandboxServiceClient { return agboxv1.NewSandboxServiceClient(nowhere{}) },
		Token:  func(id string) string { return "token" }, Sandboxes: func(context.Context) ([]string, error) { return []string{"box1"}, nil },
		Log: slog.New(slog.DiscardHandler),
	})
	f.Cleanup(h.Close)
	return h
}

// serve has the handler answer, and fails where that is no answer.
func serve(t *testing.T, h *Handler, method, target string, header http.Header, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	address, err := url.ParseRequestURI(target)
	if err != nil {
		return httptest.NewRecorder() // no server would have got it
	}
	r := httptest.NewRequest(method, "/", bytes.NewReader(body))
	r.URL, r.Header = address, header
	r.Header.Set("X-Access-Token", "token")
	r = r.WithContext(route.With(r.Context(), route.Target{Sandbox: "box1", Port: route.EnvdPort}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code < 200 || w.Code > 599 {
		t.Errorf("%s %s: %d", method, target, w.Code)
	}
	return w
}

// FuzzEnvelopes: whatever comes as the body of a call is answered, in the wire's own way.
func FuzzEnvelopes(f *testing.F) {
	h := fuzzed(f)
	f.Add("/process.Process/Start", "application/connect+json", []byte("\x00\x00\x00\x00\x02{}"))
	f.Add("/process.Process/Start", "application/connect+json", []byte("\x00\xff\xff\xff\xff{}"))
	f.Add("/process.Process/SendInput", "application/json", []byte(`{"process":{"pid":1},"input":{"stdin":"aGk="}}`))
	f.Add("/filesystem.Filesystem/Stat", "application/proto", []byte("\x0a\x01/"))
	f.Add("/filesystem.Filesystem/WatchDir", "application/connect+proto", []byte("\x01\x00\x00\x00\x01x"))
	f.Fuzz(func(t *testing.T, path, kind string, body []byte) {
		if !calls[path] {
			path = "/process.Process/Start"
		}
		serve(t, h, http.MethodPost, path, http.Header{"Content-Type": {kind}}, body)
	})
}

// FuzzForms: whatever comes as an upload is answered, and no file is made of what is not one.
func FuzzForms(f *testing.F) {
	h := fuzzed(f)
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, _ := w.CreateFormFile("file", "a/b")
	_, _ = io.WriteString(part, "content")
	w.Close()
	f.Add("multipart/form-data; boundary="+w.Boundary(), "", "x", form.Bytes())
	f.Add("application/octet-stream", "gzip", "x", []byte("\x1f\x8b\x08\x00"))
	f.Add("multipart/form-data; boundary=x", "", "ä", []byte("--x\r\nContent-Disposition: form-data; name=file; filename*=utf-8''%ff\r\n\r\n--x--"))
	f.Fuzz(func(t *testing.T, kind, coding, metadata string, body []byte) {
		header := http.Header{"Content-Type": {kind}, "Content-Encoding": {coding}, "X-Metadata-Key": {metadata}}
		if w := serve(t, h, http.MethodPost, "/files", header, body); w.Code == http.StatusOK {
			t.Errorf("what the daemon refuses is answered with %s", w.Body)
		}
	})
}

// FuzzSignatures: nobody gets in by a signature that was not made with the token.
func FuzzSignatures(f *testing.F) {
	f.Add("/files?path=x&signature=v1_", "path", "user", "")
	f.Add("/files?path=x&signature=v1_&signature_expiration=1", "p:read", "u", "99999999999999999999")
	f.Fuzz(func(t *testing.T, target, path, user, expiration string) {
		if address, err := url.ParseRequestURI(target); err == nil {
			r := &http.Request{Method: http.MethodGet, URL: address, Header: http.Header{}}
			if checkSignature(r, "the token", time.Unix(1000, 0)) == nil {
				t.Errorf("%q gets in", target)
			}
		}
		query := url.Values{"path": {path}, "username": {user}, "signature_expiration": {expiration},
			"signature": {signatureOf(path, "read", user, "the token", expiration)}}
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/files", RawQuery: query.Encode()}, Header: http.Header{}}
		if !fits(r, "the token") || fits(r, "another token") {
			t.Errorf("the signature of %q as %q until %q does not fit its token alone", path, user, expiration)
		}
	})
}
