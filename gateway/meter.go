package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/gateway/route"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// meter counts what the gateway does. The daemon counts the rest.
type meter struct {
	registry    *prometheus.Registry
	requests    *prometheus.HistogramVec
	connections prometheus.Gauge
	refused     prometheus.Counter
}

func newMeter() *meter {
	m := &meter{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "agbox_gateway_request_seconds",
			Help:    "How long requests took to the end of their answer, by the class of its HTTP status.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}}, []string{"plane", "status"}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "agbox_gateway_connections", Help: "Connections that speak HTTP and are open."}),
		refused:     prometheus.NewCounter(prometheus.CounterOpts{Name: "agbox_gateway_tokens_refused_total", Help: "Requests with a token that does not count."}),
	}
	m.registry.MustRegister(m.requests, m.connections, m.refused)
	return m
}

// request notes one that was answered.
func (m *meter) request(plane string, answered httpsnoop.Metrics) {
	m.requests.WithLabelValues(plane, fmt.Sprintf("%dxx", min(max(answered.Code/100, 1), 5))).Observe(answered.Duration.Seconds())
}

// changed follows what net/http does with a connection. One that was taken over speaks HTTP no more.
func (m *meter) changed(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		m.connections.Inc()
	case http.StateClosed, http.StateHijacked:
		m.connections.Dec()
	}
}

// serveMetrics tells an operator what the daemon and the gateway count.
func (g *Gateway) serveMetrics(w http.ResponseWriter, r *http.Request) {
	id, _ := access.FromContext(r.Context())
	reply, err := agboxv1.NewSandboxServiceClient(g.access.Conn(id)).ReadMetrics(r.Context(), &agboxv1.ReadMetricsRequest{})
	switch {
	case status.Code(err) == codes.PermissionDenied:
		route.Refuse(w, http.StatusForbidden, status.Convert(err).Message())
		return
	case status.Code(err) == codes.ResourceExhausted:
		route.Refuse(w, http.StatusTooManyRequests, status.Convert(err).Message())
		return
	case err != nil:
		route.Refuse(w, http.StatusBadGateway, "the daemon does not tell its metrics: "+status.Convert(err).Message())
		return
	}
	families, err := g.meter.registry.Gather()
	w.Header().Set("Content-Type", string(expfmt.FmtText))
	_, writeErr := w.Write(reply.Text)
	for _, family := range families {
		_, e := expfmt.MetricFamilyToText(w, family)
		writeErr = errors.Join(writeErr, e)
	}
	if err := errors.Join(err, writeErr); err != nil {
		g.config.Log.Info("metrics were not read to their end", slog.Any("error", err))
	}
}
