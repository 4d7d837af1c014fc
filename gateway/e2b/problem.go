package e2b

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/sdk"
)

// problem is an error as the wire has it: the status once more in the body, where the JavaScript SDK looks for it.
type problem struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (p *problem) Error() string { return p.Message }

func (p *problem) write(w http.ResponseWriter) { write(w, p.Code, p) }

func refused(status int, format string, args ...any) *problem {
	return &problem{status, fmt.Sprintf(format, args...)}
}

func notFound(id string) *problem {
	return refused(http.StatusNotFound, "sandbox %q was not found", id)
}

// statuses are those of the daemon's codes; others are 500.
var statuses = map[codes.Code]int{
	codes.InvalidArgument: http.StatusBadRequest, codes.NotFound: http.StatusNotFound, codes.Unauthenticated: http.StatusUnauthorized,
	codes.PermissionDenied: http.StatusForbidden, codes.FailedPrecondition: http.StatusConflict, codes.AlreadyExists: http.StatusConflict,
	codes.Aborted: http.StatusConflict, codes.ResourceExhausted: http.StatusTooManyRequests, codes.Unavailable: http.StatusServiceUnavailable,
	codes.DeadlineExceeded: http.StatusGatewayTimeout, codes.Unimplemented: http.StatusNotImplemented,
}

// problemOf is what a caller hears of an error.
func problemOf(err error) *problem {
	var (
		own     *problem
		daemon  *sdk.Error
		failed  *sdk.SandboxFailedError
		deleted *sdk.SandboxDeletedError
		turned  *sdk.TransitionError
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, context.DeadlineExceeded):
		return refused(http.StatusGatewayTimeout, "the daemon did not do it within %s: try again; an image that has to be pulled is best pulled beforehand", patience)
	case errors.As(err, &failed) && strings.HasPrefix(failed.Code, "IMAGE_"):
		return refused(http.StatusNotFound, "the template's image cannot be used (%s): %s", failed.Code, failed.Message)
	case errors.As(err, &failed):
		return refused(http.StatusInternalServerError, "%s", err)
	case errors.As(err, &deleted):
		return refused(http.StatusNotFound, "%s", err)
	case errors.As(err, &turned):
		return refused(http.StatusConflict, "%s", err)
	case errors.As(err, &daemon):
		if status, known := statuses[daemon.Code]; known {
			return refused(status, "%s", daemon.Message)
		}
	}
	return refused(http.StatusInternalServerError, "%s", err)
}
