package gate

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"

	"github.com/agbox-dev/agbox/gateway"
	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/spf13/cobra"
)

func urlCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "url SANDBOX PORT",
		Short: "Print the address of a sandbox's port for a browser",
		Long: `Print where a port of a sandbox is reached through the gateway of this user, as its configuration says, with the token that shows
it once: the browser keeps that in a cookie. Who has the address can use that sandbox's ports. Nothing is asked of the gateway or
the daemon.`,
		Example: "  xdg-open \"$(agbox gateway url web 8080)\"",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := load()
			if err != nil {
				return err
			}
			dir, err := stateDir()
			if err != nil {
				return err
			}
			if config.Tokens, err = access.OpenTokens(dir); err != nil {
				return err
			}
			address, err := portURL(config, args[0], args[1])
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), address)
			}
			return err
		},
	}
}

// portURL is what urlCommand prints.
func portURL(config gateway.Config, sandboxID, port string) (string, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("%q is no port: give one from 1 to 65535", port)
	}
	if sandboxID == "" || url.PathEscape(sandboxID) != sandboxID {
		return "", fmt.Errorf("%q is no sandbox id: agbox sandbox list tells those there are", sandboxID)
	}
	_, listens, err := net.SplitHostPort(cmp.Or(config.Listen, gateway.DefaultListen))
	if err != nil {
		return "", fmt.Errorf("gateway.listen: %w", err)
	}
	keys, err := access.New(config.Tokens, nil, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		return "", err
	}
	address := url.URL{Scheme: "http", Path: "/", RawQuery: "agbox-token=" + keys.PortsToken(sandboxID),
		Host: fmt.Sprintf("%d-%s.%s:%s", n, sandboxID, cmp.Or(config.Domain, "localhost"), listens)}
	if config.TLS.Enabled() {
		address.Scheme = "https"
	}
	return address.String(), nil
}
