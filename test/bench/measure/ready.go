package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/bench/figure"
)

// pool is a configuration with these keys of the table, but for those that the daemon does not know: what they turn off it never does.
func (b *Bench) pool(ctx context.Context, keys ...string) (string, error) {
	config := ""
	for _, key := range keys {
		known, err := b.understands(ctx, "[pool]\n"+key+"\n")
		if err != nil {
			return "", err
		}
		if known {
			config += key + "\n"
		}
	}
	if config == "" {
		return "", nil
	}
	return "[pool]\n" + config, nil
}

const (
	noneRecent = "recent = 0"
	noNetworks = "networks = 0"
)

// nothingReady is a configuration with which each create makes all that it takes.
func (b *Bench) nothingReady(ctx context.Context) (string, error) {
	return b.pool(ctx, noneRecent, noNetworks)
}

// readyNetworks creates sandboxes for which nothing was made ahead but a network.
func (b *Bench) readyNetworks(ctx context.Context) (_ []figure.Row, err error) {
	create := figure.Row{Key: "network-create", Name: "create → READY, with a ready network"}
	if known, err := b.understands(ctx, "[pool]\n"+noNetworks+"\n"); err != nil || !known {
		create.Absent = "this daemon makes no networks ahead"
		return []figure.Row{create}, err
	}
	config, err := b.pool(ctx, noneRecent)
	if err != nil {
		return nil, err
	}
	d, err := b.daemon(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	ours, side, err := b.inTurn(ctx, d, func() error { return d.networksReady(ctx) })
	if err != nil {
		return nil, err
	}
	return []figure.Row{
		beside("network-create", create.Name, rawCreate, ours[0], side[0], figure.Promise{Ratio: 0.85}),
		beside("network-delete", "delete → DELETED, its network is given back", rawDelete, ours[2], side[2], figure.Promise{Ratio: 0.6}),
	}, nil
}

// networksReady waits until as many networks are ready as are kept.
func (d *daemon) networksReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		info, err := d.Info(ctx, &agboxv1.InfoRequest{})
		if err != nil || info.NetworksReady >= info.NetworksKept {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d networks are ready and not %d: %w", info.NetworksReady, info.NetworksKept, ctx.Err())
		}
	}
}
