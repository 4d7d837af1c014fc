package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

// call is one request, with the daemon as its sender may see it.
type call struct {
	*http.Request
	*Handler
	client *sdk.Client
	// header is the answer's.
	header http.Header
}

// answer does a call. A nil body is an empty one.
type answer func(c *call) (status int, body any, err error)

func (h *Handler) route() {
	for pattern, do := range map[string]answer{
		"POST /sandboxes":                 func(c *call) (int, any, error) { return c.create(defaultTimeoutV1) },
		"POST /v2/sandboxes":              func(c *call) (int, any, error) { return c.create(defaultTimeout) },
		"POST /sandboxes/{id}/connect":    func(c *call) (int, any, error) { return c.connect(true) },
		"POST /v2/sandboxes/{id}/connect": func(c *call) (int, any, error) { return c.connect(false) },
		"POST /sandboxes/{id}/resume":     (*call).resume,
		"GET /sandboxes":                  (*call).listRunning,
		"GET /v2/sandboxes":               (*call).list,
		"GET /sandboxes/metrics":          metricsOfMany,
		"GET /sandboxes/{id}":             (*call).info,
		"DELETE /sandboxes/{id}":          (*call).kill,
		"POST /sandboxes/{id}/timeout":    (*call).timeout,
		"POST /sandboxes/{id}/refreshes":  (*call).refresh,
		"POST /sandboxes/{id}/pause":      (*call).pause,
		"GET /sandboxes/{id}/metrics":     (*call).metrics,
		"GET /sandboxes/{id}/logs":        logs,
		"GET /v2/sandboxes/{id}/logs":     logsV2,
		"PUT /sandboxes/{id}/network":     (*call).updateNetwork,
		"POST /sandboxes/{id}/fork":       (*call).fork,
		"POST /sandboxes/{id}/snapshots":  (*call).snapshot,
		"GET /snapshots":                  (*call).snapshots,
		"GET /templates":                  templates,
		"GET /v2/templates":               templates,
		"GET /templates/aliases/{alias}":  templateByAlias,
		"DELETE /templates/{id}":          (*call).deleteTemplate,
	} {
		h.mux.Handle(pattern, h.serve(do))
	}
	for pattern, do := range (builds{h}).route() {
		h.mux.Handle(pattern, h.serve(do))
	}
	h.mux.HandleFunc(UploadPath, h.upload)
	h.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
}

// notOffered are parts of E2B's wire that agbox has nothing for.
var notOffered = []string{"/volumes", "/volumecontent", "/secrets", "/teams", "/nodes", "/admin", "/api-keys", "/access-tokens",
	"/templates", "/v2/templates", "/v3/templates"}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, pattern := h.mux.Handler(r); pattern != "" {
		h.mux.ServeHTTP(w, r) // which sets the path's values
		return
	}
	for _, part := range notOffered {
		if r.URL.Path == part || strings.HasPrefix(r.URL.Path, part+"/") {
			refused(http.StatusNotImplemented, "%s %s is not offered by agbox: docs/e2b.md says what is", r.Method, part).write(w)
			return
		}
	}
	refused(http.StatusNotFound, "there is nothing at %s %s: docs/e2b.md says what is", r.Method, r.URL.Path).write(w)
}

// serve does a call for whom the gateway knows.
func (h *Handler) serve(do answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		client, err := h.config.Client(r)
		if err != nil {
			refused(http.StatusUnauthorized, "%s", err).write(w)
			return
		}
		status, body, err := do(&call{Request: r, Handler: h, client: client, header: w.Header()})
		if err != nil {
			problem := problemOf(err)
			if problem.Code >= http.StatusInternalServerError {
				h.config.Log.Warn("a call of E2B's wire failed", "method", r.Method, "path", r.URL.Path, "error", err)
			}
			problem.write(w)
			return
		}
		write(w, status, body)
	})
}

func write(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // whoever is gone hears nothing
}

// read decodes the body, which may be empty, into request. Fields that nobody knows are left out.
func (c *call) read(request any) error {
	err := json.NewDecoder(c.Body).Decode(request)
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return refused(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", large.Limit)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return refused(http.StatusBadRequest, "the body is not the JSON that was expected: %s", err)
	}
	return nil
}

// number reads a query parameter that may be absent.
func (c *call) number(name string, otherwise, least, most int64) (int64, error) {
	given := c.URL.Query().Get(name)
	if given == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(given, 10, 64)
	if err != nil || n < least || n > most {
		return 0, refused(http.StatusBadRequest, "%s is %q: give a number from %d to %d", name, given, least, most)
	}
	return n, nil
}

// aside is a context for what has to be done though the caller may be gone.
func (c *call) aside() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.Context()), 30*time.Second)
}
