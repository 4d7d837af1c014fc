package life_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/agbox-dev/agbox/test/servertest"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(holdSocket); socket != "" {
		fmt.Fprintln(os.Stderr, holdForever(socket, os.Getenv(holdSandbox)))
		os.Exit(1)
	}
	servertest.Main(m)
}
