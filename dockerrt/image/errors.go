package image

import (
	"errors"
	"io"
	"net"
	"strings"

	"github.com/distribution/reference"
	"github.com/docker/docker/client"
)

// What Ensure fails with. Each is also an error with ErrorCode() string, the code of a FAILED event. An engine that
// went away and a context that ended are none of these: they stay in the chain as they are.
var (
	// ErrNotFound: the registry has no such image or tag, or the policy forbids to ask it.
	ErrNotFound error = &kind{"IMAGE_NOT_FOUND", "image: not found"}
	// ErrDenied: the registry wants other credentials, or gives no more to those that it was shown.
	ErrDenied error = &kind{"IMAGE_PULL_DENIED", "image: pull denied"}
	// ErrStalled: the pull moved nothing for as long as is allowed.
	ErrStalled error = &kind{"IMAGE_PULL_STALLED", "image: pull stalled"}
	// ErrNoSpace: the engine's disk is full.
	ErrNoSpace error = &kind{"IMAGE_NO_SPACE", "image: no space left"}
	// ErrUnreachableRegistry: the engine got no connection to the registry: refused, no such host, TLS.
	ErrUnreachableRegistry error = &kind{"IMAGE_REGISTRY_UNREACHABLE", "image: registry unreachable"}
	// ErrFailed: every other reason, a reference or policy that is none included.
	ErrFailed error = &kind{"IMAGE_PULL_FAILED", "image: pull failed"}
	// ErrClosed: the Store was closed before the image was there. It has no code: it says nothing of the image.
	ErrClosed = errors.New("image: closed")
)

type kind struct{ code, text string }

func (k *kind) Error() string     { return k.text }
func (k *kind) ErrorCode() string { return k.code }

// engineLost tells an engine that went away from all that it says itself.
func engineLost(err error) bool {
	_, broken := errors.AsType[*net.OpError](err)
	return broken || client.IsErrConnectionFailed(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// The engine passes on what a registry said as text only, with one status (404 or 500) for very different things. The
// first that matches decides: a full disk is not the registry's fault, and "denied" often comes with "does not exist".
// The words are moby's (20.10 tried, 28 with either image store by its source), registries' and Go's net and crypto/tls.
var causes = []struct {
	kind  error
	words []string
}{
	{ErrNoSpace, []string{"no space left on device", "disk quota exceeded"}},
	{ErrUnreachableRegistry, []string{
		"connection refused", "no such host", "server misbehaving", "temporary failure in name resolution",
		"no route to host", "network is unreachable", "i/o timeout", "client.timeout exceeded",
		"tls handshake timeout", "context deadline exceeded", "connection reset by peer", "proxyconnect",
		"x509: ", "tls: ", "server gave http response to https client",
	}},
	{ErrDenied, []string{
		"unauthorized: ", "401 unauthorized", "authentication required", "no basic auth credentials", "access denied",
		"denied: ", "authorization failed", "403 forbidden", "toomanyrequests: ", "429 too many requests",
	}},
	{ErrNotFound, []string{"manifest unknown", "name unknown", "not found"}},
}

// classify finds the kind of what the engine answered to a pull of named. The reference itself is not read: a tag
// may be called "unauthorized".
func classify(named reference.Named, answer error) error {
	text := strings.NewReplacer(named.String(), "", reference.FamiliarString(named), "").Replace(answer.Error())
	text = strings.ToLower(text)
	for _, s := range causes {
		for _, word := range s.words {
			if strings.Contains(text, word) {
				return s.kind
			}
		}
	}
	return ErrFailed
}
