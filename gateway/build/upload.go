package build

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// MaxUpload bounds one upload as it is sent, maxUploads all that are kept.
	MaxUpload = 1 << 30
	// maxTaking is how many are taken at once; more are refused.
	maxTaking  = 8
	maxUploads = 8 << 30
)

// ErrFull reports that there is no room for an upload.
var ErrFull = errors.New("build: full")

// upload is where an owner's files with this hash lie. The hash is the client's own word, so owners have none in common.
func (b *Builds) upload(owner, hash string) string {
	name := sha256.Sum256([]byte(owner + "\x00" + hash))
	return filepath.Join(b.dir, "uploads", hex.EncodeToString(name[:]))
}

// Has reports whether an owner has uploaded the files with this hash.
func (b *Builds) Has(owner, hash string) bool {
	_, err := os.Stat(b.upload(owner, hash))
	return err == nil
}

// Put keeps a tar stream, gzipped or not.
func (b *Builds) Put(owner, hash string, stream io.Reader) error {
	select {
	case b.taking <- struct{}{}:
		defer func() { <-b.taking }()
	default:
		return fmt.Errorf("%w: %d uploads are being taken: try again later", ErrFull, maxTaking)
	}
	if b.uploaded() > maxUploads {
		return fmt.Errorf("%w: builds' uploads have more than %d bytes: they go a day after they came", ErrFull, int64(maxUploads))
	}
	return place(b.upload(owner, hash), func(file io.Writer) error {
		_, err := io.Copy(file, stream)
		return err
	})
}

func (b *Builds) uploaded() (size int64) {
	_ = filepath.WalkDir(filepath.Join(b.dir, "uploads"), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // what was removed meanwhile takes no room
		}
		if info, err := entry.Info(); err == nil && !entry.IsDir() {
			size += info.Size()
		}
		return nil
	})
	return size
}

// open returns an owner's files.
func (b *Builds) open(owner, hash string) (*os.File, error) {
	file, err := os.Open(b.upload(owner, hash))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the files of this step were not uploaded, or more than a day ago: build again", ErrNone)
	}
	return file, err
}
