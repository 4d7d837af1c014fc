package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/raw"
)

var unread sync.Mutex

// streamAttacks are by who asks for much and takes none of it, and by who says much.
var streamAttacks = []*attack{
	{point: "B8", name: "300 followers that never read", play: func(ctx context.Context, b *box) error {
		exec, err := b.hold(ctx, []string{"sh", "-c", "dd if=/dev/zero bs=1M count=8 2>/dev/null; echo; echo held; sleep 600"})
		if err != nil {
			return err
		}
		// Two at once would take all the calls that there are for clients, from the victims too: that is how it is bounded.
		unread.Lock()
		defer unread.Unlock()
		client, err := raw.Dial(raw.WithSocket(b.Daemon.Socket()))
		if err != nil {
			return err
		}
		defer client.Close()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for i := range 300 {
			_, err := client.ReadExecLog(ctx, &agboxv1.ReadExecLogRequest{ExecId: exec.ID, Follow: true})
			if refusal, ok := errors.AsType[*raw.Error](err); ok && refusal.Code == codes.ResourceExhausted {
				break // the others' followers
			} else if err != nil {
				return fmt.Errorf("follower %d: %w", i, err)
			}
		}
		for range 5 {
			if err := b.works(ctx); err != nil {
				return err
			}
		}
		pause(ctx, time.Second)
		return b.works(ctx)
	}},
	{point: "B9", name: "endless output", play: func(ctx context.Context, b *box) error {
		const most = 32 << 20
		var all []sdk.Exec
		for range 3 {
			exec, err := b.SDK.CreateExec(ctx, b.id, []string{"sh", "-c", "exec cat /dev/zero"}, sdk.WithTimeout(1500*time.Millisecond), sdk.WithMaxLog(most))
			if err != nil {
				return err
			}
			all = append(all, exec)
		}
		if err := b.works(ctx); err != nil {
			return err
		}
		for _, exec := range all {
			if err := ended(within(ctx, patience, "the end of endless output", func(ctx context.Context) error {
				_, err := b.SDK.WaitExec(ctx, exec)
				return err
			})); err != nil {
				return err
			}
			if info, err := os.Stat(exec.StdoutPath); err != nil || info.Size() > most {
				return fmt.Errorf("of output that may have %d bytes: %v, %w", most, info, err)
			}
		}
		return b.works(ctx)
	}},
	{point: "B12", name: "a watch on / while files come and go", play: func(ctx context.Context, b *box) error {
		if _, err := b.hold(ctx, []string{"sh", "-c", `echo held; cd /tmp; while :; do for i in 1 2 3 4 5 6 7 8 9; do mkdir -p d$i; echo >d$i/f; done; rm -rf d?; done`}); err != nil {
			return err
		}
		seen := map[string]int{}
		err := within(ctx, patience, "watch", func(ctx context.Context) error {
			for event, err := range b.SDK.WatchFiles(ctx, b.id, "/", true) {
				if err != nil {
					return err
				}
				if seen[event.Kind]++; seen["created"] > 50 {
					break
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%w, after %v", err, seen)
		}
		return b.works(ctx)
	}},
}
