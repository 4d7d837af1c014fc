package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sync/errgroup"
)

// FollowLogs copies the output of an exec to the writers while it grows, and returns the exec as it
// ended once it has ended and all output is copied; beside Err's error if it failed or was cancelled.
// It may begin at any time, also after the end, and copies from the start. The two writers are used
// from two goroutines; the first error of one ends it all. The context's end does too, but leaves
// the exec running.
func (c *Client) FollowLogs(ctx context.Context, exec Exec, stdout, stderr io.Writer) (Exec, error) {
	notices := newWatch(exec.StdoutPath, exec.StderrPath)
	defer notices.close()
	ended := make(chan struct{})
	group, ctx := errgroup.WithContext(ctx)
	last := exec
	group.Go(func() error {
		var err error
		last, err = c.wait(ctx, exec, waiting{})
		if !last.Ended() {
			return err
		}
		close(ended)
		return nil
	})
	for path, w := range map[string]io.Writer{exec.StdoutPath: stdout, exec.StderrPath: stderr} {
		t := tail{path: path, wake: notices.wakes[path], ended: ended, out: w}
		group.Go(func() error { return t.copy(ctx) })
	}
	err := group.Wait()
	if errors.Is(err, fs.ErrNotExist) && last.Err() != nil {
		err = nil // it never came to writing anything
	}
	if err == nil {
		err = last.Err()
	}
	return last, err
}

// tail copies one growing file.
type tail struct {
	path  string
	wake  <-chan struct{} // the file may have appeared or grown
	ended <-chan struct{} // it will not grow any more
	out   io.Writer
}

func (t tail) copy(ctx context.Context) error {
	file, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer file.Close()
	buf := make([]byte, 64<<10)
	for {
		last := t.over() // asked before reading, so that the end is not met too early
		for {
			n, err := file.Read(buf)
			if n > 0 {
				if _, err := t.out.Write(buf[:n]); err != nil {
					return fmt.Errorf("sdk: cannot pass on output: %w", err)
				}
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("%w: %w", ErrLogFile, err)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if last {
			return nil
		}
		if err := t.rest(ctx); err != nil {
			return err
		}
	}
}

// open waits for the file to appear, which may be a moment after the exec was accepted.
func (t tail) open(ctx context.Context) (*os.File, error) {
	for {
		last := t.over()
		file, err := openLog(t.path)
		if last || !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
		if err := t.rest(ctx); err != nil {
			return nil, err
		}
	}
}

func (t tail) over() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

func (t tail) rest(ctx context.Context) error {
	select {
	case <-t.wake:
	case <-t.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
