package access

import (
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Reasons that the gateway refuses with, beside the daemon's own.
const (
	ReasonToken     = "TOKEN_INVALID"
	ReasonForbidden = "TOKEN_FORBIDS"
	ReasonScope     = "TOKEN_SCOPE"
	ReasonQuota     = "TOKEN_QUOTA"
	ReasonRate      = "TOKEN_RATE"
	ReasonNoDaemon  = "DAEMON_UNREACHABLE"
)

// Refusal is a status as the daemon sends them; metadata comes in pairs.
func Refusal(code codes.Code, reason, message string, metadata ...string) error {
	return refusal(code, reason, message, 0, metadata...)
}

func refusal(code codes.Code, reason, message string, retry time.Duration, metadata ...string) error {
	info := &errdetails.ErrorInfo{Domain: "agents-sandbox", Reason: reason}
	for i := 0; i+1 < len(metadata); i += 2 {
		if metadata[i+1] == "" {
			continue
		}
		if info.Metadata == nil {
			info.Metadata = map[string]string{}
		}
		info.Metadata[metadata[i]] = metadata[i+1]
	}
	details := []protoadapt.MessageV1{info}
	if retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	st := status.New(code, message)
	if detailed, err := st.WithDetails(details...); err == nil {
		st = detailed
	}
	return st.Err()
}

// unreached says in a client's words that the daemon did not answer, or went away: what the transport says is about the gateway's
// host.
func unreached(err error) error {
	if status.Code(err) != codes.Unavailable || reasonOf(err) != "" {
		return err
	}
	return refusal(codes.Unavailable, ReasonNoDaemon, "agboxd is not running: nobody answers the gateway on its socket: start agboxd", time.Second)
}

// What is not there and what is not theirs are told apart by nothing: these are the daemon's own words.

func noSandbox(id string) error {
	return Refusal(codes.NotFound, "SANDBOX_NOT_FOUND", fmt.Sprintf("there is no sandbox %s: it was never created, or its history was removed", id), "sandbox_id", id)
}

func noExec(id string) error {
	return Refusal(codes.NotFound, "EXEC_NOT_FOUND", fmt.Sprintf("there is no exec %s: it was never started, or its history was removed", id), "exec_id", id)
}

func noSnapshot(id string) error {
	return Refusal(codes.NotFound, "SNAPSHOT_NOT_FOUND", fmt.Sprintf("there is no snapshot %s: it was never made, or it was deleted", id), "snapshot_id", id)
}

func forbidden(field string, grant Grant) error {
	what := field
	if what == "" {
		what = "this call"
	}
	return Refusal(codes.PermissionDenied, ReasonForbidden,
		fmt.Sprintf("%s is not for your token: whoever runs the gateway can give one with --allow %s", what, grant), "field", field, "grant", string(grant))
}
