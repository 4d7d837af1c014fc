// Package envd is the data plane of E2B's wire over agbox: an http.Handler that answers what the unmodified E2B SDKs ask of one sandbox
// (commands, terminals, files, watches, health), by the daemon's own calls. Nothing in the sandbox listens for it.
//
// Who asks has shown the sandbox's access token, or a signature made with it, and sees that sandbox alone. What it does in there, it does as a
// user of the sandbox, by that user's rights. All that is kept in memory is what open connections, inputs and watchers are; the daemon knows
// the rest, so that a gateway that was killed goes on as before.
package envd

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agbox-dev/agbox/gateway/bound"
	"github.com/agbox-dev/agbox/gateway/envd/proto/filesystem"
	"github.com/agbox-dev/agbox/gateway/envd/proto/filesystem/filesystemconnect"
	"github.com/agbox-dev/agbox/gateway/envd/proto/process"
	"github.com/agbox-dev/agbox/gateway/envd/proto/process/processconnect"
	"github.com/agbox-dev/agbox/gateway/route"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Config is what the data plane stands on.
type Config struct {
	// Client returns the daemon as who holds a sandbox's token may use it.
	Client func(sandboxID string) agboxv1.SandboxServiceClient
	// Token returns the access token of a sandbox, always the same for one sandbox.
	Token func(sandboxID string) string
	// Sandboxes are the ids of those that file URLs without an id may be for.
	Sandboxes func(context.Context) ([]string, error)
	// Wake makes a paused sandbox READY where it is to be by a request, and reports whether it did. nil: none is.
	Wake func(context.Context, *agboxv1.SandboxHandle) (bool, error)
	Log  *slog.Logger
}

const (
	// maxMessage bounds a message of an RPC, in bytes: input, and lists of arguments.
	maxMessage = 4 << 20
	// calm is how long a call waits for the daemon that is not a stream: a little less than the SDKs' own 60 s.
	calm = 55 * time.Second
	// maxStreams are open at once in all, and maxBoxStreams of one sandbox: commands that are followed, watches, inputs and files on their way.
	// Each is a stream to the daemon, which has 2048 for all that the gateway does; each sandbox with some needs one more to be followed.
	maxStreams    = 640
	maxBoxStreams = 256
)

var errStreams = errors.New("too many commands, watches, inputs and files are open at once: end some, or try again later")

// Handler answers requests that have a route.Target. Close must follow.
type Handler struct {
	config   Config
	rpc      *http.ServeMux
	presence presence
	inputs   inputs
	watchers watchers
	users    users
	streams  *bound.Bound
	signers  signers

	closing context.Context
	close   context.CancelFunc
	work    sync.WaitGroup
}

var _ http.Handler = (*Handler)(nil)

// New returns a handler.
func New(config Config) *Handler {
	h := &Handler{config: config, rpc: http.NewServeMux(), streams: bound.New(maxStreams, maxBoxStreams), signers: signers{turn: make(chan struct{}, 1)}}
	h.closing, h.close = context.WithCancel(context.Background())
	options := []connect.HandlerOption{connect.WithReadMaxBytes(maxMessage), connect.WithCompressMinBytes(1 << 20)}
	h.rpc.Handle(processconnect.NewProcessHandler(&processes{h}, options...))
	h.rpc.Handle(filesystemconnect.NewFilesystemHandler(&filesystems{h}, options...))
	return h
}

// Close ends inputs, watchers and what follows sandboxes, and waits for it. What is being answered ends with its connection.
func (h *Handler) Close() {
	h.close()
	h.work.Wait()
}

// box is a sandbox that a request is about, and that runs.
type box struct {
	id     string
	client agboxv1.SandboxServiceClient
	handle *agboxv1.SandboxHandle
}

type boxKey struct{}

func boxOf(ctx context.Context) *box {
	b, _ := ctx.Value(boxKey{}).(*box)
	return b
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target, _ := route.From(r.Context())
	signed := r.URL.Path == "/files" && r.URL.Query().Has("signature")
	if target.Sandbox == "" && signed {
		id, err := h.signer(r)
		if err != nil {
			err.write(w)
			return
		}
		target.Sandbox = id
	}
	b, gone := h.find(r.Context(), target.Sandbox, h.authentic(r, target.Sandbox))
	if gone != nil {
		gone.write(w)
		return
	}
	if r.URL.Path == "/health" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if refused := h.admit(r, b.id, signed); refused != nil {
		refused.write(w)
		return
	}
	h.serve(w, r.WithContext(context.WithValue(r.Context(), boxKey{}, b)))
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/files" {
		release, ok := h.streams.Take(boxOf(r.Context()).id)
		if !ok {
			refuse(http.StatusTooManyRequests, "%s", errStreams).write(w)
			return
		}
		defer release()
	}
	switch {
	case r.URL.Path == "/files" && r.Method == http.MethodGet, r.URL.Path == "/files" && r.Method == http.MethodHead:
		h.download(w, r)
	case r.URL.Path == "/files" && r.Method == http.MethodPost:
		h.upload(w, r)
	case r.URL.Path == "/metrics" && r.Method == http.MethodGet:
		h.metrics(w, r)
	default:
		if calls[r.URL.Path] {
			h.rpc.ServeHTTP(w, r)
			return
		}
		if streaming(r) { // whose client reads no other answer
			unknownRPC.ServeHTTP(w, r)
			return
		}
		refuse(http.StatusNotFound, "there is nothing at %s %.200s: docs/e2b.md says what is", r.Method, r.URL.Path).write(w)
	}
}

// open counts a stream of the sandbox's until release is called.
func (h *Handler) open(b *box) (release func(), err error) {
	release, ok := h.streams.Take(b.id)
	if !ok {
		return nil, connect.NewError(connect.CodeResourceExhausted, errStreams)
	}
	return release, nil
}

// calls are the paths of the RPCs that there are.
var calls = func() map[string]bool {
	paths := map[string]bool{}
	for _, file := range []protoreflect.FileDescriptor{process.File_process_process_proto, filesystem.File_filesystem_filesystem_proto} {
		service := file.Services().Get(0)
		for i := range service.Methods().Len() {
			paths["/"+string(service.FullName())+"/"+string(service.Methods().Get(i).Name())] = true
		}
	}
	return paths
}()

func streaming(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+")
}

// unknownRPC ends a stream that is of no call.
var unknownRPC = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodeUnimplemented, errUnknownRPC))
})

// authentic reports whether the request shows the sandbox's token.
func (h *Handler) authentic(r *http.Request, id string) bool {
	given := r.Header.Get("X-Access-Token")
	return given != "" && id != "" && subtle.ConstantTimeCompare([]byte(given), []byte(h.config.Token(id))) == 1
}

// admit refuses who has not shown that it may use the sandbox.
func (h *Handler) admit(r *http.Request, id string, signed bool) *problem {
	switch given := r.Header.Get("X-Access-Token"); {
	case h.authentic(r, id):
		return nil
	case r.URL.Path == "/files" && given != "":
		return refuse(http.StatusUnauthorized, "access token present in header but does not match")
	case signed:
		return checkSignature(r, h.config.Token(id), time.Now())
	case r.URL.Path == "/files":
		return refuse(http.StatusUnauthorized, "missing signature query parameter")
	}
	return refuse(http.StatusUnauthorized, "the header X-Access-Token is not this sandbox's: use the envdAccessToken that its creation told")
}

// find returns the sandbox if it runs. Who has shown its token may wake it.
func (h *Handler) find(ctx context.Context, id string, mayWake bool) (*box, *problem) {
	ctx, cancel := context.WithTimeout(ctx, calm)
	defer cancel()
	b := &box{id: id, client: h.config.Client(id)}
	for tries := 0; ; tries++ {
		resp, err := b.client.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
		switch r := refusalOf(err); {
		case err == nil:
		case r.code == codes.NotFound, r.code == codes.PermissionDenied, r.code == codes.InvalidArgument:
			return nil, absent(id, "The sandbox was not found")
		default:
			return nil, refuse(http.StatusInternalServerError, "the daemon does not answer: %s", r.message)
		}
		if b.handle = resp.GetSandbox(); usable(b.handle.GetState()) {
			return b, nil
		}
		if h.config.Wake == nil || !mayWake || tries > 0 {
			return nil, absent(id, "The sandbox was not found")
		}
		if woken, err := h.config.Wake(ctx, b.handle); err != nil || !woken {
			return nil, absent(id, "The sandbox was not found")
		}
	}
}

// usable is a state in which commands and files are reached.
func usable(state agboxv1.SandboxState) bool {
	return state == agboxv1.SandboxState_SANDBOX_STATE_READY || state == agboxv1.SandboxState_SANDBOX_STATE_DRAINING ||
		state == agboxv1.SandboxState_SANDBOX_STATE_DORMANT
}

// problem is an error as the plain HTTP part of the wire has it: the status once more in the body.
type problem struct {
	Sandbox string `json:"sandboxId,omitempty"`
	Message string `json:"message"`
	Code    int    `json:"code"`
}

func (p *problem) write(w http.ResponseWriter) {
	if p.Sandbox != "" {
		answer(w, p.Code, p)
		return
	}
	answer(w, p.Code, struct { // in the order that clients compare
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{p.Code, p.Message})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who has left hears nothing
}

// absent is what SDKs take for a sandbox that does not run, on every path.
func absent(id, message string) *problem {
	return &problem{Sandbox: id, Message: message, Code: http.StatusBadGateway}
}
