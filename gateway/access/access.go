package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
)

// What a request lacks that shows no token, or one that does not count.
var (
	ErrNoToken = errors.New("access: no token: send one as X-API-Key or as Authorization: Bearer")
	ErrToken   = errors.New("access: the token is not known, was revoked, or has expired")
)

// Access decides for one gateway. It is safe for concurrent use.
type Access struct {
	tokens *Tokens
	daemon grpc.ClientConnInterface
	log    *slog.Logger
	secret []byte
	places places
	quotas quotas

	mu     sync.Mutex
	limits map[string]*rate.Limiter // by the token's name
}

// New returns what decides by the tokens in their directory about calls to the daemon. log gets a line for each call that was
// refused, and for each that changes something.
func New(tokens *Tokens, daemon grpc.ClientConnInterface, log *slog.Logger) (*Access, error) {
	secret, err := tokens.secret()
	if err != nil {
		return nil, err
	}
	return &Access{tokens: tokens, daemon: daemon, log: log, secret: secret, limits: map[string]*rate.Limiter{}}, nil
}

// Authenticate returns who sent the request, by its token; else ErrNoToken or ErrToken.
func (a *Access) Authenticate(r *http.Request) (Identity, error) {
	token := r.Header.Get("X-Api-Key")
	if token == "" {
		scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if strings.EqualFold(scheme, "Bearer") {
			token = strings.TrimSpace(value)
		}
	}
	if token == "" {
		return Identity{}, ErrNoToken
	}
	return a.tokens.identify(token)
}

// SandboxToken is what shows that its holder may use the sandbox. It stays the same as long as the gateway keeps its state.
func (a *Access) SandboxToken(id string) string {
	mac := hmac.New(sha256.New, a.secret)
	mac.Write([]byte("sandbox\x00" + id))
	return hex.EncodeToString(mac.Sum(nil))
}

// PortsToken is what shows that its holder may use the ports of a sandbox, and nothing else of it.
func (a *Access) PortsToken(id string) string { return a.SandboxToken("ports of " + id) }

// IsSandboxToken reports whether a token is the sandbox's, in a time that tells nothing of it.
func (a *Access) IsSandboxToken(id, token string) bool {
	return subtle.ConstantTimeCompare([]byte(a.SandboxToken(id)), []byte(token)) == 1
}

// limit is the token bucket of an identity, nil where it has none.
func (a *Access) limit(id Identity) *rate.Limiter {
	if id.Rate <= 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	limiter := a.limits[id.Name]
	if limiter == nil || limiter.Limit() != rate.Limit(id.Rate) {
		limiter = rate.NewLimiter(rate.Limit(id.Rate), max(1, int(id.Rate)))
		a.limits[id.Name] = limiter
	}
	return limiter
}
