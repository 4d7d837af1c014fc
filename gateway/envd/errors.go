package envd

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agbox-dev/agbox/sdk/raw"
)

var (
	errUnknownRPC    = errors.New("there is no such call: docs/e2b.md says which there are")
	errAuthorization = errors.New("the header Authorization is none that names a user: send Basic with \"user:\" in base64")
)

func refuse(status int, format string, args ...any) *problem {
	return &problem{Message: fmt.Sprintf(format, args...), Code: status}
}

// refusal is what the daemon said no with.
type refusal struct {
	code            codes.Code
	reason, message string
}

// refusalOf reads an error of the daemon, by whatever client it came.
func refusalOf(err error) refusal {
	if typed := (*raw.Error)(nil); errors.As(err, &typed) {
		return refusal{typed.Code, typed.Reason, typed.Message}
	}
	st, _ := status.FromError(err)
	r := refusal{code: st.Code(), message: st.Message()}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			r.reason = info.Reason
		}
	}
	return r
}

// meanings are the codes of E2B's wire for the daemon's reasons, and the status of its plain part.
var meanings = map[string]struct {
	code   connect.Code
	status int
}{
	"FILE_NOT_FOUND":          {connect.CodeNotFound, http.StatusNotFound},
	"FILE_NOT_A_DIRECTORY":    {connect.CodeInvalidArgument, http.StatusBadRequest},
	"FILE_IS_A_DIRECTORY":     {connect.CodeInvalidArgument, http.StatusBadRequest},
	"FILE_EXISTS":             {connect.CodeAlreadyExists, http.StatusConflict},
	"FILE_PERMISSION_DENIED":  {connect.CodePermissionDenied, http.StatusForbidden},
	"FILE_NO_SPACE":           {connect.CodeResourceExhausted, http.StatusInsufficientStorage},
	"DISK_FULL":               {connect.CodeResourceExhausted, http.StatusInsufficientStorage},
	"TRANSFER_TOO_LARGE":      {connect.CodeResourceExhausted, http.StatusRequestEntityTooLarge},
	"FILE_ATTRIBUTES_INVALID": {connect.CodeInvalidArgument, http.StatusBadRequest},
	"PATH_INVALID":            {connect.CodeInvalidArgument, http.StatusBadRequest},
	"OWNER_UNKNOWN":           {connect.CodeUnauthenticated, http.StatusUnauthorized},
	"EXEC_NOT_FOUND":          {connect.CodeNotFound, http.StatusNotFound},
	"EXEC_ALREADY_TERMINAL":   {connect.CodeNotFound, http.StatusNotFound},
	"EXEC_NOT_RUNNING":        {connect.CodeNotFound, http.StatusNotFound},
	"STDIN_NOT_OPEN":          {connect.CodeInternal, http.StatusInternalServerError},
	"NO_TERMINAL":             {connect.CodeInternal, http.StatusInternalServerError},
	"SANDBOX_NOT_READY":       {connect.CodeUnavailable, http.StatusBadGateway},
	"SANDBOX_INVALID_STATE":   {connect.CodeUnavailable, http.StatusBadGateway},
	"SANDBOX_NOT_FOUND":       {connect.CodeUnavailable, http.StatusBadGateway},
}

// others are those without such a reason.
var others = map[codes.Code]struct {
	code   connect.Code
	status int
}{
	codes.InvalidArgument:    {connect.CodeInvalidArgument, http.StatusBadRequest},
	codes.PermissionDenied:   {connect.CodePermissionDenied, http.StatusForbidden},
	codes.FailedPrecondition: {connect.CodeFailedPrecondition, http.StatusBadRequest},
	codes.ResourceExhausted:  {connect.CodeResourceExhausted, http.StatusTooManyRequests},
	codes.Unavailable:        {connect.CodeUnavailable, http.StatusServiceUnavailable},
	codes.DeadlineExceeded:   {connect.CodeDeadlineExceeded, http.StatusGatewayTimeout},
	codes.Canceled:           {connect.CodeCanceled, 499},
	codes.NotFound:           {connect.CodeNotFound, http.StatusNotFound},
}

func meaning(r refusal) (connect.Code, int) {
	if m, known := meanings[r.reason]; known {
		return m.code, m.status
	}
	if m, known := others[r.code]; known {
		return m.code, m.status
	}
	return connect.CodeInternal, http.StatusInternalServerError
}

// rpcError is what a caller of an RPC hears of an error.
func rpcError(err error) error {
	if own := (*connect.Error)(nil); err == nil || errors.As(err, &own) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	}
	r := refusalOf(err)
	code, _ := meaning(r)
	return connect.NewError(code, errors.New(r.message))
}

// problemOf is what a caller of the plain part hears of an error.
func problemOf(b *box, err error) *problem {
	if own := (*problem)(nil); errors.As(err, &own) {
		return own
	}
	r := refusalOf(err)
	_, status := meaning(r)
	if status == http.StatusBadGateway {
		return absent(b.id, "The sandbox was not found")
	}
	return refuse(status, "%s", r.message)
}

func (p *problem) Error() string { return p.Message }

func invalid(format string, args ...any) error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf(format, args...))
}

func internal(format string, args ...any) error {
	return connect.NewError(connect.CodeInternal, fmt.Errorf(format, args...))
}
