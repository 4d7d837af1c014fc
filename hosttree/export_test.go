package hosttree

import (
	"context"
	"io"
	"io/fs"
	"os"
)

var NewExcluder = newExcluder

// Excluded is excluded.
func (x *excluder) Excluded(rel string, dir bool) bool { return x.excluded(rel, dir) }

// CheckLimited is Check with another bound on the number of entries.
func CheckLimited(ctx context.Context, source string, limit int, visit func(string, fs.FileInfo) error) error {
	return check(ctx, source, nil, limit, visit)
}

// Walk gives visit each file and how Stream opens it.
func Walk(ctx context.Context, source string, visit func(path string, open func() (*os.File, fs.FileInfo, error)) error) error {
	w := &walk{source: source, patterns: &excluder{}, limit: maxEntries, visit: func(e entry) error {
		if e.open == nil {
			return nil
		}
		return visit(e.path, e.open)
	}}
	return w.run(ctx)
}

const (
	BufferSize = bufferSize
	MaxDepth   = maxDepth
)

// Stream is StreamOpened for a source that is looked for by its path.
func Stream(ctx context.Context, w io.Writer, source, target string, excludes []string) error {
	return write(ctx, w, walk{source: source}, target, excludes, nil, nil)
}
