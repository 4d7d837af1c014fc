// Package route tells what a request to the gateway is for: a sandbox's port, or the gateway itself.
package route

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// EnvdPort is where a sandbox's data plane of E2B is looked for. Nothing in the sandbox listens there: the gateway answers.
const EnvdPort = 49983

// The headers that name a sandbox and a port where the Host does not.
const (
	HeaderSandbox = "E2b-Sandbox-Id"
	HeaderPort    = "E2b-Sandbox-Port"
)

// Target is a port of a sandbox. Sandbox is "" where only the request's signature tells which it is.
type Target struct {
	Sandbox string
	Port    uint16
}

// ErrTarget reports a request that names a sandbox and a port in a way that cannot be.
var ErrTarget = errors.New("route: no such target")

type refused struct{ text string }

func (r *refused) Error() string        { return r.text }
func (r *refused) Is(target error) bool { return target == ErrTarget }

// Of returns the target of a request, false where it is for the gateway itself. domain is the one that sandboxes' names end in,
// without a port. It fails with ErrTarget, in words for the client.
func Of(r *http.Request, domain string) (Target, bool, error) {
	if t, ok := ofHost(r.Host, domain); ok {
		return t, true, nil
	}
	id, port := r.Header.Get(HeaderSandbox), r.Header.Get(HeaderPort)
	switch {
	case id == "" && port == "":
		return Target{Port: EnvdPort}, r.URL.Path == "/files" && r.URL.Query().Has("signature"), nil
	case id == "" || port == "":
		return Target{}, false, &refused{"the headers " + HeaderSandbox + " and " + HeaderPort + " go together: send both or none"}
	case !validID(id):
		return Target{}, false, &refused{HeaderSandbox + " holds no sandbox id: ids have 4 to 200 letters, digits, - and _"}
	}
	n, ok := parsePort(port)
	if !ok {
		return Target{}, false, &refused{HeaderPort + " holds no port: use 1 to 65535"}
	}
	return Target{id, n}, true, nil
}

// Ours reports whether a request's Host is one that a gateway on loopback can have, so that no page of elsewhere whose name was bound to
// this machine speaks to it from a browser here: an address, localhost, the domain, or a name under one of these.
func Ours(host, domain string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" || net.ParseIP(strings.Trim(host, "[]")) != nil { // no browser sends none
		return true
	}
	for _, ours := range []string{"localhost", domain} {
		if _, below := cutSuffixFold(host, "."+ours); below || strings.EqualFold(host, ours) {
			return true
		}
	}
	return false
}

// ofHost reads <port>-<id>.<domain>[:port].
func ofHost(host, domain string) (Target, bool) {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	label, found := cutSuffixFold(strings.TrimSuffix(host, "."), "."+domain)
	if !found {
		return Target{}, false
	}
	port, id, found := strings.Cut(label, "-")
	if !found || !validID(id) {
		return Target{}, false
	}
	n, ok := parsePort(port)
	return Target{id, n}, ok
}

func cutSuffixFold(s, suffix string) (string, bool) {
	at := len(s) - len(suffix)
	if at < 0 || !strings.EqualFold(s[at:], suffix) {
		return "", false
	}
	return s[:at], true
}

func parsePort(text string) (uint16, bool) {
	if text == "" || text[0] < '1' || text[0] > '9' { // one way to write each
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil
}

// validID is the form of the contract's ids.
func validID(id string) bool {
	if len(id) < 4 || len(id) > 200 || !alphanumeric(id[0]) || !alphanumeric(id[len(id)-1]) {
		return false
	}
	for i := range len(id) {
		if !alphanumeric(id[i]) && id[i] != '-' && id[i] != '_' {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

type key struct{}

// With returns a context that holds the target, for From.
func With(ctx context.Context, t Target) context.Context { return context.WithValue(ctx, key{}, t) }

// From returns the target of a request that the gateway passed on to the handler of a sandbox's port.
func From(ctx context.Context) (Target, bool) {
	t, ok := ctx.Value(key{}).(Target)
	return t, ok
}

// Refuse answers with an error in the form that E2B's clients read: the status again as code, and a message.
func Refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// A client that has left is told nothing.
	_ = json.NewEncoder(w).Encode(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{status, message})
}
