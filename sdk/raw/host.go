package raw

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// ErrHost reports that what names a daemon on another machine cannot be used.
var ErrHost = errors.New("raw: no such host")

// The environment of programs that are to use a daemon of another machine.
const (
	EnvHost  = "AGBOX_HOST"  // https://HOST:PORT of a gateway, or ssh://USER@HOST; http:// on loopback only
	EnvToken = "AGBOX_TOKEN" // for the gateway
	EnvCA    = "AGBOX_CA"    // a PEM file with the certificates to trust beside the system's
)

// host is where a daemon of another machine, or of another user, is reached.
type host struct {
	url   *url.URL
	token string
	ca    string                 // file
	said  atomic.Pointer[string] // by the last ssh that ended
}

// WithHost makes Dial use the daemon behind a gateway, https://HOST:PORT, or the one of a user on a machine that is reached by
// ssh, ssh://USER@HOST. http:// is for a gateway on loopback. token and ca, a PEM file, may be "".
func WithHost(address, token, ca string) Option {
	return func(c *Client) error {
		parsed, err := parseHost(address)
		if err == nil {
			c.host, c.socket = &host{url: parsed, token: token, ca: ca}, ""
		}
		return err
	}
}

// FromEnvironment is WithHost with what the environment says, if it names a host.
func FromEnvironment() Option {
	return func(c *Client) error {
		address := os.Getenv(EnvHost)
		if address == "" {
			return nil
		}
		return WithHost(address, os.Getenv(EnvToken), os.Getenv(EnvCA))(c)
	}
}

func parseHost(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %q is no URL: write https://HOST:PORT or ssh://USER@HOST", ErrHost, address)
	}
	refuse := func(problem string) (*url.URL, error) {
		return nil, fmt.Errorf("%w: %s %s", ErrHost, u.Redacted(), problem)
	}
	_, secret := u.User.Password()
	switch {
	case u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh":
		return refuse("begins with no scheme that is known: write https://HOST:PORT or ssh://USER@HOST")
	case u.Hostname() == "" || strings.HasPrefix(u.Hostname(), "-") || strings.HasPrefix(u.User.Username(), "-"):
		return refuse("names no host: write https://HOST:PORT or ssh://USER@HOST")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return refuse("has more than a host and a port: leave out what follows them")
	case secret || u.User != nil && u.Scheme != "ssh":
		return refuse("holds a user or a password: give the token in " + EnvToken)
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return refuse("would send the token in the clear: write https://")
	}
	return u, nil
}

func loopback(name string) bool {
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.IsLoopback() || name == "localhost"
}

// Times after which a connection counts as lost whose other end is silent.
const (
	pingAfter   = 30 * time.Second
	pingTimeout = 20 * time.Second
)

func (h *host) dialing(c *Client) (target string, opts []grpc.DialOption, err error) {
	opts = []grpc.DialOption{grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout})}
	if h.url.Scheme == "ssh" {
		return "passthrough:///agboxd", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
				return dialSSH(h.url, func(words string) { h.said.Store(&words) })
			})), nil
	}
	port := h.url.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[h.url.Scheme]
	}
	target = "dns:///" + net.JoinHostPort(h.url.Hostname(), port)
	if h.token != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer{h.token, h.url.Scheme == "https"}))
	}
	if h.url.Scheme == "http" {
		return target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials())), nil
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if h.ca != "" {
		pem, err := os.ReadFile(h.ca)
		if err != nil {
			return "", nil, fmt.Errorf("%w: cannot read the certificates to trust: %w", ErrHost, err)
		}
		if trust.RootCAs, err = x509.SystemCertPool(); err != nil {
			trust.RootCAs = x509.NewCertPool()
		}
		if !trust.RootCAs.AppendCertsFromPEM(pem) {
			return "", nil, fmt.Errorf("%w: %s holds no certificate in PEM", ErrHost, h.ca)
		}
	}
	return target, append(opts, grpc.WithTransportCredentials(credentials.NewTLS(trust))), nil
}

func (h *host) unavailable(message string) string {
	if h.url.Scheme == "ssh" {
		said := h.said.Load()
		if said == nil {
			return fmt.Sprintf("no agboxd by %s: %s", h.url.Redacted(), message)
		}
		if words, own := strings.CutPrefix(*said, "agbox: "); own { // agbox there says it best
			return words
		}
		return fmt.Sprintf("no agboxd by %s: %s", h.url.Redacted(), *said)
	}
	return fmt.Sprintf("no agbox gateway answers at %s: %s", h.url.Redacted(), message)
}

// bearer is a gateway's token.
type bearer struct {
	token  string
	secure bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.secure }
