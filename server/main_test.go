package server_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(holdSocket); socket != "" {
		fmt.Fprintln(os.Stderr, holdForever(socket, os.Getenv(holdSandbox)))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		if status == 0 {
			if err := everyReasonWasTried(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				status = 1
			}
		}
		os.Exit(status)
	}))
}
