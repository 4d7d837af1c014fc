// Package gate is agbox gateway: it starts a gateway, and keeps its tokens.
package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/agbox-dev/agbox/gateway"
	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/spf13/cobra"
)

// Command is agbox gateway. json tells whether answers are wanted as JSON, once flags are read.
func Command(json *bool) *cobra.Command {
	var flags struct {
		listen, domain string
		tls            gateway.TLS
	}
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Serve agboxd to other machines and to programs made for E2B",
		Long: `Serve the daemon of this user to who shows a token: E2B's SDKs, agbox and the Go library on other machines
(AGBOX_HOST), browsers. It listens on 127.0.0.1:7439 unless told otherwise, and on an address that others reach only with TLS.

Without any token it makes one at its first start and prints what to export.`,
		Example: `  agbox gateway
  agbox gateway --listen 0.0.0.0:7439 --tls-self-signed --tls-name box.example.com
  agbox gateway token add ci --label team=ci --max-sandboxes 20`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&flags.listen, "listen", "", "HOST:PORT to listen on (default "+gateway.DefaultListen+")")
	f.StringVar(&flags.domain, "domain", "", "domain that names of sandboxes' ports end in (default localhost)")
	f.StringVar(&flags.tls.CertFile, "tls-cert", "", "PEM file with the certificate")
	f.StringVar(&flags.tls.KeyFile, "tls-key", "", "PEM file with its key")
	f.BoolVar(&flags.tls.SelfSigned, "tls-self-signed", false, "make a certificate, which clients have to be told of (AGBOX_CA)")
	f.StringArrayVar(&flags.tls.Names, "tls-name", nil, "name or address that --tls-self-signed is for, beside this machine's own")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := load()
		if err != nil {
			return err
		}
		if flags.listen != "" {
			config.Listen = flags.listen
		}
		if flags.domain != "" {
			config.Domain = flags.domain
		}
		if flags.tls.Enabled() {
			names := append(config.TLS.Names, flags.tls.Names...)
			config.TLS = flags.tls
			config.TLS.Names = names
		} else {
			config.TLS.Names = append(config.TLS.Names, flags.tls.Names...)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return serve(ctx, config, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	cmd.AddCommand(tokenCommand(json), urlCommand())
	return cmd
}

// stateDir is where the gateway keeps its tokens, its secret and its certificate.
func stateDir() (string, error) {
	data, err := xdg("XDG_DATA_HOME", ".local/share")
	return filepath.Join(data, "agents-sandbox", "gateway"), err
}

func xdg(variable, fallback string) (string, error) {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("set HOME or %s: %w", variable, err)
	}
	return filepath.Join(home, fallback), nil
}

func serve(ctx context.Context, config gateway.Config, out, log io.Writer) error {
	dir, err := stateDir()
	if err != nil {
		return err
	}
	if config.Tokens, err = access.OpenTokens(dir); err != nil {
		return err
	}
	config.TLS.Dir = dir
	config.Log = slog.New(slog.NewJSONHandler(log, nil))
	daemon, err := raw.Dial()
	if err != nil {
		return err
	}
	defer daemon.Close()
	g, err := gateway.New(config, daemon.Conn())
	if err != nil {
		return err
	}
	if err := first(config, g, out); err != nil {
		return errors.Join(err, g.Close())
	}
	config.Log.Info("listening", slog.String("url", g.URL()))
	err = g.Run(ctx)
	config.Log.Info("ended")
	return err
}

// first makes a token where there is none, and says how to use it.
func first(config gateway.Config, g *gateway.Gateway, out io.Writer) error {
	tokens, err := config.Tokens.List()
	if err != nil || len(tokens) > 0 {
		return err
	}
	secret, err := config.Tokens.Add(access.Token{Name: "first"})
	if err != nil {
		return err
	}
	url := reachable(g)
	fmt.Fprintf(out, "# token first: it is told this once. agbox gateway token list, revoke and add have to do with it.\n"+
		"export AGBOX_HOST=%[1]s AGBOX_TOKEN=%[2]s\nexport E2B_API_URL=%[1]s E2B_SANDBOX_URL=%[1]s E2B_API_KEY=%[2]s\n", url, secret)
	if config.TLS.SelfSigned {
		fmt.Fprintf(out, "export AGBOX_CA=%[1]s NODE_EXTRA_CA_CERTS=%[1]s SSL_CERT_FILE=%[1]s\n", config.TLS.SelfSignedFile())
	}
	return nil
}

// reachable is the URL, by this machine's name where it listens on all addresses.
func reachable(g *gateway.Gateway) string {
	address, ok := g.Address().(*net.TCPAddr)
	if name, err := os.Hostname(); ok && address.IP.IsUnspecified() && err == nil {
		return fmt.Sprintf("https://%s:%d", name, address.Port)
	}
	return g.URL()
}

// DialCommand is agbox dial-stdio: the daemon's socket on standard input and output, for ssh.
func DialCommand() *cobra.Command {
	return &cobra.Command{
		Use: "dial-stdio", Short: "Connect standard input and output with the daemon's socket, for ssh://", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := raw.DialSocket(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			// It ends when the daemon does, or who is on the other side: what then waits on standard input ends with the program.
			ended := make(chan error, 2)
			go func() { _, err := io.Copy(conn, cmd.InOrStdin()); ended <- err }()
			go func() { _, err := io.Copy(cmd.OutOrStdout(), conn); ended <- err }()
			return <-ended
		},
	}
}

// Host is where the daemon is that flags name, by option; nil where they name none.
func Host(address, ca string) sdk.Option {
	if address == "" && ca == "" {
		return nil
	}
	if address == "" {
		address = os.Getenv(raw.EnvHost)
	}
	if ca == "" {
		ca = os.Getenv(raw.EnvCA)
	}
	if address == "" { // a CA alone is for nothing
		return nil
	}
	return sdk.WithHost(address, os.Getenv(raw.EnvToken), ca)
}
