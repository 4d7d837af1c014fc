package measure

import (
	"context"

	"github.com/agbox-dev/agbox/test/bench/figure"
)

// What keeps a daemon from making anything ahead. One that does not know the keys makes nothing ahead in any case.
const (
	noPool     = "[pool]\nrecent = 0\n"
	noNetworks = "[network]\nready = 0\n"
)

// nothingReady is a configuration with which each create makes all that it takes.
func (b *Bench) nothingReady(ctx context.Context) (string, error) {
	var config string
	for _, part := range []string{noPool, noNetworks} {
		known, err := b.understands(ctx, part)
		if err != nil {
			return "", err
		}
		if known {
			config += part
		}
	}
	return config, nil
}

// readyNetworks creates sandboxes for which a network was made ahead.
func (b *Bench) readyNetworks(ctx context.Context) ([]figure.Row, error) {
	row := figure.Row{Key: "network-create", Name: "create → READY, with a ready network", Absent: "this daemon makes no networks ahead"}
	return []figure.Row{row}, nil
}

// warm creates sandboxes that were made ahead.
func (b *Bench) warm(ctx context.Context) ([]figure.Row, error) {
	row := figure.Row{Key: "warm-create", Name: "create → READY, warm", Absent: "this daemon makes no sandboxes ahead"}
	return []figure.Row{row}, nil
}
