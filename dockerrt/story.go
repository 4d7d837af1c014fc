package dockerrt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// telling is how what is done under a context gets into a sandbox's operation log.
type telling struct {
	docker               *Docker
	sandboxID, operation string
	secrets              *strings.Replacer
}

type tellingKey struct{}

// telling returns a context under which step and tell write the sandbox's operation log. What it was asked for is secret: variables
// and hooks of the spec, which errors and outputs may repeat.
func (d *Docker) telling(ctx context.Context, sandboxID, operation string, envs map[string]string, services ...*agboxv1.ServiceSpec) context.Context {
	return context.WithValue(ctx, tellingKey{}, &telling{d, sandboxID, operation, secrets(envs, services)})
}

// tellingOf is telling for all of a spec.
func (d *Docker) tellingOf(ctx context.Context, sandboxID, operation string, spec *agboxv1.CreateSpec) context.Context {
	return d.telling(ctx, sandboxID, operation, spec.GetEnvs(), slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices())...)
}

// shortestSecret is the length in bytes from which a variable's value is taken out of other people's texts. Shorter ones
// keep no secret, and are parts of many words.
const shortestSecret = 6

func secrets(envs map[string]string, services []*agboxv1.ServiceSpec) *strings.Replacer {
	var hidden []string
	hide := func(envs map[string]string) {
		for _, value := range envs {
			hidden = append(hidden, value)
		}
	}
	hide(envs)
	for _, service := range services {
		hide(service.GetEnvs())
		hidden = append(hidden, service.GetPostStartOnPrimary()...)
	}
	slices.SortFunc(hidden, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // the first that fits counts
	var pairs []string
	for _, text := range hidden {
		if len(text) >= shortestSecret {
			pairs = append(pairs, strconv.Quote(text), "***", text, "***")
		}
	}
	return strings.NewReplacer(pairs...)
}

// tell writes a line into the operation log that ctx belongs to, if it belongs to one. Texts of others among args go through told.
func tell(ctx context.Context, format string, args ...any) {
	if t, ok := ctx.Value(tellingKey{}).(*telling); ok {
		t.docker.note(t.sandboxID, t.operation, fmt.Sprintf(format, args...))
	}
}

// told returns a text of the engine, or of a program in the sandbox, as it may stand in an operation log.
func told(ctx context.Context, text string) string {
	if t, ok := ctx.Value(tellingKey{}).(*telling); ok {
		text = t.secrets.Replace(text)
	}
	return text
}

// step is for the beginning of a step: defer step(ctx, "made", "network %s", name)(&err). At the end the log has a line
// with how long it took, and the error if it failed.
func step(ctx context.Context, done, format string, args ...any) func(*error) {
	began := time.Now()
	return func(err *error) { stepped(ctx, began, *err, done, format, args...) }
}

// stepped is step for one that has ended.
func stepped(ctx context.Context, began time.Time, err error, done, format string, args ...any) {
	what, took := fmt.Sprintf(format, args...), time.Since(began).Milliseconds()
	switch {
	case err == nil:
		tell(ctx, "%s %s in %d ms", what, done, took)
	case errors.Is(err, context.Canceled):
		tell(ctx, "%s not %s: given up after %d ms", what, done, took)
	default:
		tell(ctx, "%s not %s after %d ms: %s", what, done, took, told(ctx, err.Error()))
	}
}
