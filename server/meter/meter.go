// Package meter counts and measures what the daemon does, in the text format of Prometheus. Labels have values from sets that
// are known beforehand: no ids, no paths, nothing that a client or a sandbox says.
package meter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// seconds are the buckets of latencies: from a call that reads memory to a pull.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// Meter is one daemon's. Use New. It is safe for concurrent use.
type Meter struct {
	registry     *prometheus.Registry
	calls        *prometheus.CounterVec
	callSeconds  *prometheus.HistogramVec
	streams      *prometheus.GaugeVec
	engine       *prometheus.HistogramVec
	engineErrors *prometheus.CounterVec
}

// New returns one that has counted nothing, of a daemon that starts now.
func New() *Meter {
	m := &Meter{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "agbox_calls_total",
			Help: "Calls that were answered, by their gRPC code."}, []string{"call", "code"}),
		callSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "agbox_call_seconds", Buckets: seconds,
			Help: "How long calls took that are no streams."}, []string{"call"}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "agbox_streams", Help: "Streams that are open."}, []string{"call"}),
		engine: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "agbox_engine_call_seconds", Buckets: seconds,
			Help: "How long the engine took to answer."}, []string{"method", "endpoint"}),
		engineErrors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "agbox_engine_errors_total",
			Help: "Calls that the engine refused, failed at, or did not answer."}, []string{"method", "endpoint", "kind"}),
	}
	started := prometheus.NewGauge(prometheus.GaugeOpts{Name: "agbox_start_time_seconds", Help: "When the daemon started: it changes with each restart."})
	started.SetToCurrentTime()
	m.registry.MustRegister(m.calls, m.callSeconds, m.streams, m.engine, m.engineErrors, started)
	return m
}

// Unary measures the calls that next answers, which is the outermost interceptor otherwise.
func (m *Meter) Unary(next grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		begun, call := time.Now(), path.Base(info.FullMethod)
		response, err := next(ctx, req, info, handler)
		m.callSeconds.WithLabelValues(call).Observe(time.Since(begun).Seconds())
		m.calls.WithLabelValues(call, status.Code(err).String()).Inc()
		return response, err
	}
}

// Stream is Unary for streams.
func (m *Meter) Stream(next grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		call := path.Base(info.FullMethod)
		open := m.streams.WithLabelValues(call)
		open.Inc()
		defer open.Dec()
		err := next(srv, stream, info, handler)
		m.calls.WithLabelValues(call, status.Code(err).String()).Inc()
		return err
	}
}

// Engine measures what goes to a container engine by way of next, until its answer begins.
func (m *Meter) Engine(next http.RoundTripper) http.RoundTripper { return &transport{m, next} }

type transport struct {
	meter *Meter
	next  http.RoundTripper
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	begun, method, endpoint := time.Now(), methodOf(r.Method), endpointOf(r.URL.Path)
	response, err := t.next.RoundTrip(r)
	t.meter.engine.WithLabelValues(method, endpoint).Observe(time.Since(begun).Seconds())
	kind := ""
	switch {
	case errors.Is(err, context.Canceled):
		kind = "cancelled"
	case err != nil:
		kind = "unanswered"
	case response.StatusCode >= 500:
		kind = "5xx"
	case response.StatusCode >= 400:
		kind = "4xx"
	}
	if kind != "" {
		t.meter.engineErrors.WithLabelValues(method, endpoint, kind).Inc()
	}
	return response, err
}

const other = "other"

func methodOf(method string) string {
	if slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "DELETE"}, method) {
		return method
	}
	return other
}

var endpoints = []string{"_ping", "auth", "build", "commit", "containers", "distribution", "events", "exec", "images", "info", "networks",
	"session", "system", "version", "volumes"}

// endpointOf is the class of a path such as /v1.47/containers/ID/json: containers.
func endpointOf(path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if len(first) > 1 && first[0] == 'v' && first[1] >= '0' && first[1] <= '9' {
		first, _, _ = strings.Cut(rest, "/")
	}
	if slices.Contains(endpoints, first) {
		return first
	}
	return other
}

// Text is all of it, and what is the case now.
func (m *Meter) Text(now *State) ([]byte, error) {
	present := prometheus.NewRegistry()
	if err := present.Register(now); err != nil {
		return nil, fmt.Errorf("meter: %w", err)
	}
	families, err := prometheus.Gatherers{m.registry, present}.Gather()
	if err != nil {
		return nil, fmt.Errorf("meter: %w", err)
	}
	var text bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			return nil, fmt.Errorf("meter: %w", err)
		}
	}
	return text.Bytes(), nil
}
