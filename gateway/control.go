package gateway

import (
	"net"
	"net/http"
	"path/filepath"

	"google.golang.org/grpc"

	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/gateway/build"
	"github.com/agbox-dev/agbox/gateway/e2b"
	"github.com/agbox-dev/agbox/sdk"
)

// control is E2B's control plane over the daemon, each request as far as its sender may go.
func (g *Gateway) control(conn grpc.ClientConnInterface) (*e2b.Handler, error) {
	daemon, err := sdk.Over(conn)
	if err != nil {
		return nil, err
	}
	if g.builds, err = build.Open(filepath.Join(g.config.Tokens.Dir(), "templates"), g.config.Log); err != nil {
		return nil, err
	}
	return e2b.New(e2b.Config{
		Client: func(r *http.Request) (*sdk.Client, error) {
			id, known := access.FromContext(r.Context())
			if !known {
				return nil, access.ErrNoToken
			}
			return sdk.Over(g.access.Conn(id))
		},
		Made: func(r *http.Request, labels map[string]string) bool {
			id, known := access.FromContext(r.Context())
			return known && labels[access.LabelScope] == id.Scope()
		},
		Owner: func(r *http.Request) string {
			id, _ := access.FromContext(r.Context())
			return id.Name
		},
		Builds: g.builds,
		Daemon: daemon, Token: g.access.SandboxToken, PortsToken: g.access.PortsToken, Templates: g.config.Templates, Domain: g.domain(), Log: g.config.Log,
	}), nil
}

// domain is what sandboxes' names end in, with the port unless it is https's own.
func (g *Gateway) domain() string {
	_, port, err := net.SplitHostPort(g.Address().String())
	if err != nil || port == "443" && g.config.TLS.Enabled() {
		return g.config.Domain
	}
	return net.JoinHostPort(g.config.Domain, port)
}
