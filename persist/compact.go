package persist

import (
	"errors"
	"os"

	"go.etcd.io/bbolt"
)

// A database is compacted when at least half of it is free and that is worth the copy.
const (
	compactShare = 2
	compactFrom  = 16 << 20
	// compactChunk bounds the transactions of a copy, in bytes.
	compactChunk = 1 << 20
)

// compact returns bolt, or a smaller database in its place. Where there is no room for a copy, or the copy is
// interrupted, the database stays as it was.
func compact(bolt *bbolt.DB, path string) (*bbolt.DB, error) {
	free := int64(bolt.Stats().FreePageN) * int64(bolt.Info().PageSize)
	info, err := os.Stat(path)
	if err != nil || info.Size() < compactFrom || free*compactShare < info.Size() {
		return bolt, nil
	}
	copied, err := compacted(bolt, path)
	if err != nil {
		return bolt, nil
	}
	if err := errors.Join(bolt.Close(), rename(copied, path)); err != nil {
		return nil, err
	}
	return openFile(path)
}

func compacted(bolt *bbolt.DB, path string) (copied string, err error) {
	file, err := beside(path)
	if err != nil {
		return "", err
	}
	target, err := openFile(file.Name())
	if err == nil {
		err = errors.Join(bbolt.Compact(target, bolt, compactChunk), target.Close())
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(err, remove(file.Name()))
	}
	return file.Name(), nil
}
