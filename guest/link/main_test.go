package link_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"go.uber.org/goleak"
)

const (
	floodVariable = "AGBOX_INITLINK_TEST_FLOOD" // the socket's directory
	floodSize     = 200
	// endlessVariable has the stranger connect again and again.
	endlessVariable = "AGBOX_INITLINK_TEST_ENDLESS"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(floodVariable); dir != "" {
		flood(dir)
	}
	goleak.VerifyTestMain(m)
}

// flood is a stranger: it connects many times, says so, and holds on until its input ends.
func flood(dir string) {
	if err := os.Chdir(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for os.Getenv(endlessVariable) != "" {
		if conn, err := net.Dial("unix", "s"); err == nil {
			conn.Close()
		}
	}
	for range floodSize {
		if _, err := net.Dial("unix", "s"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	fmt.Println("connected")
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}
