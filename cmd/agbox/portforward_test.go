package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"strconv"
	"testing"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

// TestForward: each client of a port here is connected to the port inside, and hears its end; what cannot be connected is told.
func TestForward(t *testing.T) {
	t.Parallel()
	_, socket := sdktest.Start(t)
	client, err := sdk.New(sdk.WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	box, err := client.CreateSandbox(t.Context(), sdk.Spec{Image: "debian"})
	if err != nil {
		t.Fatal(err)
	}
	inside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		conn, err := inside.Accept()
		if err == nil {
			io.Copy(conn, conn)
			conn.Close()
		}
	}()
	said, told := io.Pipe()
	ctx, end := context.WithCancel(t.Context())
	f := &forward{app: &app{stdio: stdio{bytes.NewReader(nil), io.Discard, told}}, client: client, sandbox: box.ID}
	ended := make(chan error, 1)
	go func() {
		ended <- f.run(ctx, []string{"0:" + strconv.Itoa(inside.Addr().(*net.TCPAddr).Port)})
		told.Close()
	}()
	line := make([]byte, 1024)
	n, err := said.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindString(string(line[:n]))
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if heard, err := io.ReadAll(conn); err != nil || string(heard) != "hello" {
		t.Errorf("it answers %q, %v", heard, err)
	}
	conn.Close()
	inside.Close()
	conn, err = net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if n, err = said.Read(line); err != nil || !bytes.Contains(line[:n], []byte("nothing listens on port")) {
		t.Errorf("it says %q, %v", line[:n], err)
	}
	if _, err := conn.Read(line); err == nil {
		t.Error("a client that was not connected reads something")
	}
	conn.Close()
	end()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
}

// TestForwardMistakes: what is no port is refused before anything listens.
func TestForwardMistakes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "x", "0", "8080:0", "8080:65536", "1:2:3", "-1"} {
		if _, err := parseForward(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	for text, want := range map[string][2]uint16{"8080": {8080, 8080}, "8080:3000": {8080, 3000}, "0:3000": {0, 3000}} {
		if got, err := parseForward(text); err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}
