package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/bench/figure"
)

// output has a command say much: here it is on disk when the end is told, while Docker's attach only passes it on.
func (b *Bench) output(ctx context.Context) (_ []figure.Row, err error) {
	d, err := b.daemon(ctx, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	r, err := b.runner(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.stream.Close()
	command := []string{"dd", "if=/dev/zero", "bs=1048576", fmt.Sprintf("count=%d", b.Output)}
	var ours, side []time.Duration
	for range min(b.Rounds, 3) {
		clock := time.Now()
		started, err := r.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: r.id, Command: command})
		if err != nil {
			return nil, err
		}
		if _, err := told(r.stream, agboxv1.EventType_EXEC_FINISHED); err != nil {
			return nil, err
		}
		ours = append(ours, lap(&clock))
		if err := wroteAll(started.StdoutLogPath, int64(b.Output)<<20); err != nil {
			return nil, err
		}
		clock = time.Now()
		said, err := b.plain.exec(ctx, containerOf(r.id), command...)
		if err == nil && said < int64(b.Output)<<20 {
			err = fmt.Errorf("docker's exec passed on %d bytes", said)
		}
		if err != nil {
			return nil, err
		}
		side = append(side, lap(&clock))
	}
	return []figure.Row{beside("output", fmt.Sprintf("%d MiB of output, on disk", b.Output), "Docker's exec, read and thrown away", ours, side, figure.Promise{})}, nil
}
