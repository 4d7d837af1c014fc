package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/bench/figure"
)

// warmSize is how many are kept ready where one is taken after the other.
const warmSize = 4

// warmDaemon starts a daemon that keeps so many sandboxes ready of the kind that is measured, nil where it cannot.
func (b *Bench) warmDaemon(ctx context.Context, size int) (*daemon, error) {
	if known, err := b.understands(ctx, "[pool]\n"+noneRecent+"\n"); err != nil || !known {
		return nil, err
	}
	return b.daemon(ctx, fmt.Sprintf("[pool]\n%s\n\n[[pool.warm]]\nimage = %q\nsize = %d\n", noneRecent, b.image, size))
}

// warm creates sandboxes that were made ahead: one after the other, with a first command each, and all at once.
func (b *Bench) warm(ctx context.Context) (_ []figure.Row, err error) {
	create := figure.Row{Key: "warm-create", Name: "create → READY, warm"}
	d, err := b.warmDaemon(ctx, warmSize)
	if err != nil {
		return nil, err
	}
	if d == nil {
		create.Absent = "this daemon makes no sandboxes ahead"
		return []figure.Row{create}, nil
	}
	defer func() { err = errors.Join(err, d.close()) }()
	var ready, echoed, plain, plainEchoed []time.Duration
	for range b.Lives {
		if err := d.poolReady(ctx); err != nil {
			return nil, err
		}
		took, first, id, err := d.firstCommand(ctx)
		if err != nil {
			return nil, err
		}
		ready, echoed = append(ready, took), append(echoed, first)
		if err := d.delete(ctx, id); err != nil {
			return nil, err
		}
		clock := time.Now()
		name, err := b.plain.create(ctx)
		if err != nil {
			return nil, err
		}
		plain = append(plain, time.Since(clock))
		if _, err := b.plain.exec(ctx, name, "echo", "hello"); err != nil {
			return nil, err
		}
		plainEchoed = append(plainEchoed, lap(&clock))
		if err := b.plain.remove(ctx, name); err != nil {
			return nil, err
		}
	}
	rows := []figure.Row{
		beside("warm-create", create.Name, rawCreate, ready, plain, figure.Promise{AtMost: 10, Ratio: 0.03}),
		beside("warm-first", "create → end of the first echo, warm", rawCreate+", exec", echoed, plainEchoed, figure.Promise{AtMost: 20}),
	}
	for _, n := range b.Bursts {
		row, err := b.warmBurst(ctx, n)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// warmBurst creates n at once while n are ready.
func (b *Bench) warmBurst(ctx context.Context, n int) (_ figure.Row, err error) {
	d, err := b.warmDaemon(ctx, n)
	if err != nil {
		return figure.Row{}, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.poolReady(ctx); err != nil {
		return figure.Row{}, err
	}
	took, err := d.burst(ctx, n)
	if err != nil {
		return figure.Row{}, err
	}
	row := figure.Row{Key: fmt.Sprintf("warm-%d", n), Name: fmt.Sprintf("%d creates at once → all READY, %d ready", n, n), Unit: "ms",
		Ours: figure.Milliseconds([]time.Duration{took})}
	if n == 100 {
		row.Promise.AtMost = 1000
	}
	return row, nil
}

// poolReady waits until as many sandboxes are ready as are kept.
func (d *daemon) poolReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		info, err := d.Info(ctx, &agboxv1.InfoRequest{})
		if err != nil {
			return err
		}
		classes, err := poolOf(info)
		if err != nil {
			return err
		}
		full := len(classes) > 0
		for _, class := range classes {
			if class.Problem != "" {
				return fmt.Errorf("the pool makes no sandboxes of %s: %s", class.Image, class.Problem)
			}
			full = full && class.Ready >= class.Size
		}
		if full {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the pool is not full: %+v: %w", classes, ctx.Err())
		}
	}
}

// class is what a daemon says of a kind of sandboxes that it keeps ready.
type class struct {
	Image       string
	Size, Ready int
	Problem     string
}

// poolOf reads it as JSON, in which a wire without pools has none.
func poolOf(info *agboxv1.InfoResponse) ([]class, error) {
	data, err := protojson.Marshal(info)
	if err != nil {
		return nil, err
	}
	var said struct{ Pool []class }
	err = json.Unmarshal(data, &said)
	return said.Pool, err
}

func (d *daemon) delete(ctx context.Context, id string) error {
	if _, err := d.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id}); err != nil {
		return err
	}
	_, err := d.until(ctx, id, 0, agboxv1.EventType_SANDBOX_DELETED)
	return err
}
