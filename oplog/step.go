package oplog

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

// operation is what is done under a context, as far as a sandbox's log is concerned.
type operation struct {
	logs            *Logs
	sandboxID, name string
	secrets         *strings.Replacer
}

type operationKey struct{}

// Begin returns a context under which Step and Printf write the sandbox's log. What the operation was asked for is secret: variables
// and hooks, which errors and outputs may repeat.
func (l *Logs) Begin(ctx context.Context, sandboxID, name string, envs map[string]string, services ...*agboxv1.ServiceSpec) context.Context {
	return context.WithValue(ctx, operationKey{}, &operation{l, sandboxID, name, secrets(envs, services)})
}

// BeginSpec is Begin for all of a spec.
func (l *Logs) BeginSpec(ctx context.Context, sandboxID, name string, spec *agboxv1.CreateSpec) context.Context {
	return l.Begin(ctx, sandboxID, name, spec.GetEnvs(), slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices())...)
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

// Printf writes a line into the log that ctx belongs to, if it belongs to one. Texts of others among args go through Redact.
func Printf(ctx context.Context, format string, args ...any) {
	if o, ok := ctx.Value(operationKey{}).(*operation); ok {
		o.logs.Note(o.sandboxID, o.name, fmt.Sprintf(format, args...))
	}
}

// Redact returns a text of the engine, or of a program in the sandbox, as it may stand in an operation log.
func Redact(ctx context.Context, text string) string {
	if o, ok := ctx.Value(operationKey{}).(*operation); ok {
		text = o.secrets.Replace(text)
	}
	return text
}

// Step is for the beginning of a step: defer Step(ctx, "made", "network %s", name)(&err). At the end the log has a line
// with how long it took, and the error if it failed.
func Step(ctx context.Context, done, format string, args ...any) func(*error) {
	began := time.Now()
	return func(err *error) { Stepped(ctx, began, *err, done, format, args...) }
}

// Stepped is Step for one that has ended.
func Stepped(ctx context.Context, began time.Time, err error, done, format string, args ...any) {
	what, took := fmt.Sprintf(format, args...), time.Since(began).Milliseconds()
	switch {
	case err == nil:
		Printf(ctx, "%s %s in %d ms", what, done, took)
	case errors.Is(err, context.Canceled):
		Printf(ctx, "%s not %s: given up after %d ms", what, done, took)
	default:
		Printf(ctx, "%s not %s after %d ms: %s", what, done, took, Redact(ctx, err.Error()))
	}
}
