package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/test/chaos"
)

// operatorFaults are an operator's, played once when the storm is over, in this order.
func (a *arena) operatorFaults(ctx context.Context, victims []*victim) []*attack {
	database := a.Daemon.Database()
	faults := []*attack{
		{point: "B1", name: "the API socket deleted", play: func(ctx context.Context, _ *box) error {
			if err := os.Remove(a.Daemon.Socket()); err != nil {
				return err
			}
			return within(ctx, patience, "a socket that is made again", func(ctx context.Context) error {
				for ctx.Err() == nil {
					client, err := sdk.New(sdk.WithSocket(a.Daemon.Socket()))
					if err != nil {
						return err
					}
					_, err = client.Ping(ctx)
					client.Close()
					if err == nil {
						return nil
					}
					pause(ctx, 50*time.Millisecond)
				}
				return ctx.Err()
			})
		}},
		{point: "B1", name: "the database moved away", play: func(ctx context.Context, _ *box) error {
			if err := errors.Join(a.stop(ctx), os.Rename(database, database+".away")); err != nil {
				return err
			}
			refusal := a.refuses(ctx)
			if _, err := os.Stat(database); refusal == nil && err == nil {
				refusal = errors.New("the refused start made a database")
			}
			return refusal
		}},
		{point: "B1", name: "an empty file in the database's place", play: func(ctx context.Context, _ *box) error {
			return errors.Join(os.WriteFile(database, nil, 0o600), a.refuses(ctx), os.Remove(database))
		}},
		{point: "B1", name: "the database put back", play: func(ctx context.Context, _ *box) error {
			if err := os.Rename(database+".away", database); err != nil {
				return err
			}
			if err := within(ctx, 2*patience, "start", func(ctx context.Context) error { return a.Daemon.Start(ctx) }); err != nil {
				return err
			}
			for _, v := range victims {
				v.whole(ctx)
			}
			return nil
		}},
	}
	for _, k := range faults {
		end := a.begin(k.name)
		began := time.Now()
		err := k.play(ctx, nil)
		if k.played, k.longest = 1, time.Since(began); err != nil {
			k.wrong = append(k.wrong, err)
			a.problem("%v", err)
		}
		end()
	}
	return faults
}

// stop ends the daemon as a signal does.
func (a *arena) stop(ctx context.Context) error {
	return within(ctx, patience, "stop the daemon", a.Daemon.Stop)
}

// refuses checks that the daemon does not start, and offers the choices that there are.
func (a *arena) refuses(ctx context.Context) error {
	from, err := a.logSize()
	if err != nil {
		return err
	}
	err = within(ctx, 2*patience, "a start that is refused", func(ctx context.Context) error { return a.Daemon.Start(ctx) })
	if err == nil {
		return errors.Join(errors.New("the daemon starts"), a.stop(ctx))
	}
	if !errors.Is(err, chaos.ErrEnded) {
		return err
	}
	said, err := a.logSince(from)
	if err != nil {
		return err
	}
	for _, want := range []string{"sandboxes that the database does not know", "--adopt", "--forget="} {
		if !bytes.Contains(said, []byte(want)) {
			return fmt.Errorf("the refusal does not say %q: %s", want, said)
		}
	}
	return nil
}

func (a *arena) logSize() (int64, error) {
	info, err := os.Stat(a.Daemon.Log())
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (a *arena) logSince(from int64) ([]byte, error) {
	log, err := os.Open(a.Daemon.Log())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if _, err := log.Seek(from, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(log)
}
