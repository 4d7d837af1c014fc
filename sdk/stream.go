package sdk

import (
	"errors"
	"io"
	"iter"

	"github.com/agbox-dev/agbox/sdk/raw"
)

// streamed yields what a stream brings, and last what ended it, which is ended where the daemon has no more: nil is not told.
func streamed[P, T any](open func() (*raw.Receiver[P], error), ended error, of func(*P) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		stream, err := open()
		if err == nil {
			defer stream.Close()
		}
		for err == nil {
			var p *P
			if p, err = stream.Recv(); err == nil && !yield(of(p), nil) {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			err = ended
		}
		if err != nil {
			yield(*new(T), err)
		}
	}
}

// all converts a list; it is never nil.
func all[P, T any](list []P, of func(P) T) []T {
	converted := make([]T, 0, len(list))
	for _, p := range list {
		converted = append(converted, of(p))
	}
	return converted
}
