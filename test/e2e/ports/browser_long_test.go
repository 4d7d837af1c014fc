//go:build long

package ports_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
	"github.com/agbox-dev/agbox/test/gatewaytest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// patience is how long a browser may take for one thing on a machine that does much else.
const patience = 3 * time.Minute

// browser is a Chromium that remembers nothing, and asks nobody but whom it is sent to.
type browser struct {
	*testing.T
	ctx context.Context
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		skiplog.Skip(t, "there is no browser: install Debian's package chromium")
	}
	// Without a directory of its user it makes an empty one, and removes it when all of its processes have ended.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("headless", "new"), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	// The browser lives as long as the context of the first thing that it does.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("chromium does not start: %v", err)
	}
	return &browser{t, ctx}
}

// open goes to an address and returns the answer's status, and the page's own address.
func (b *browser) open(address string) (status int64, location string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	response, err := chromedp.RunResponse(ctx, chromedp.Navigate(address))
	if err != nil {
		b.Fatalf("%s: %v", address, err)
	}
	if location, err = chromedp.Run(ctx, chromedp.Location()); err != nil {
		b.Fatal(err)
	}
	return response.Status, location
}

// text waits for an element and returns its text.
func (b *browser) text(element, of string) string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.WaitReady(element)); err != nil {
		b.Fatalf("the page has no %s: %v", element, err)
	}
	text, err := chromedp.Run(ctx, chromedp.Text(of))
	if err != nil {
		b.Fatal(err)
	}
	return text
}

// TestLongBrowser: a dev server in a sandbox without a network is used by a browser through a gateway, at the name of its port,
// WebSockets too, by who was given its address with the token; and so when the sandbox was paused, if that is to go on for traffic.
func TestLongBrowser(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	b := startBrowser(t)
	program, err := dockertest.Program("devserver", "./test/e2e/ports/testdata/devserver")
	if err != nil {
		t.Fatal(err)
	}
	client, err := sdk.New(sdk.WithSocket(d.Socket()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	box, err := client.CreateSandbox(t.Context(), sdk.Spec{Image: d.Image, Network: &sdk.Network{Mode: sdk.NetworkNone}, Wake: sdk.WakeOnTraffic})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Upload(t.Context(), box.ID, program, "/tmp/devserver"); err != nil {
		t.Fatal(err)
	}
	server, err := client.CreateExec(t.Context(), box.ID, []string{"/tmp/devserver"})
	if err != nil {
		t.Fatal(err)
	}
	log := client.ReadLog(t.Context(), server.ID, sdk.WithFollow())
	defer log.Close()
	word, err := bufio.NewReader(log).ReadString('\n')
	if err != nil {
		t.Fatalf("the dev server does not start: %v", err)
	}
	word = strings.TrimSpace(word)

	g := gatewaytest.Start(t, d.Socket(), access.Token{})
	token := g.Access().PortsToken(box.ID)
	address := func(port int) string {
		return fmt.Sprintf("http://%d-%s.localhost:%d/", port, box.ID, g.Address().(*net.TCPAddr).Port)
	}
	refused := func(port int) {
		t.Helper()
		if status, _ := b.open(address(port)); status != 403 {
			t.Errorf("without a token port %d answers %d", port, status)
		}
		if text := b.text("body", "body"); !strings.Contains(text, "this port is private") {
			t.Errorf("without a token port %d says %s", port, text)
		}
	}
	served := func(query string) {
		t.Helper()
		if status, location := b.open(address(8080) + query); status != 200 || location != address(8080) {
			t.Errorf("the browser is at %s, answered %d", location, status)
		}
		want := fmt.Sprintf("ask one\n%[1]s heard page one\nask two\n%[1]s heard page two\nclosed 1000", word)
		if heard := b.text("#ended", "#heard"); heard != want {
			t.Errorf("by WebSocket the page has heard\n%s\nwant\n%s", heard, want)
		}
	}
	refused(8080)
	served("?agbox-token=" + token)
	served("") // by its cookie
	refused(8081)
	if err := client.Pause(t.Context(), box.ID); err != nil {
		t.Fatal(err)
	}
	served("")
}
