package server

import (
	"context"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

// reasonSignalInvalid: no signal of that name or number.
const reasonSignalInvalid = "SIGNAL_INVALID"

// lastSignal is Linux's SIGRTMAX.
const lastSignal = 64

func (s *Server) SignalExec(ctx context.Context, req *agboxv1.SignalExecRequest) (*agboxv1.AcceptedResponse, error) {
	signal := signalNumber(req.Signal)
	if signal == 0 {
		return nil, &spec.Error{Reason: reasonSignalInvalid, Field: "signal",
			Message: strconv.Quote(req.Signal) + " is no signal; write a name such as INT or SIGUSR1, or a number from 1 to 64"}
	}
	if err := s.system.SignalExec(ctx, req.ExecId, signal); err != nil {
		return nil, err
	}
	return &agboxv1.AcceptedResponse{Accepted: true}, nil
}

// signalNumber reads a signal's name or number, 0 when it is neither.
func signalNumber(text string) int {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 || n > lastSignal {
			return 0
		}
		return n
	}
	return int(unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")))
}
