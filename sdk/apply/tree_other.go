//go:build !linux

package apply

import (
	"archive/tar"
	"io"
)

type hostTree struct{}

func openSource(*Mount) (*hostTree, error) { return nil, ErrUnsupported }

func (*hostTree) write(*Change, *tar.Header, io.Reader, Options) (string, error) {
	return "", ErrUnsupported
}
func (*hostTree) remove(*Change, Options) string { return ErrUnsupported.Error() }
func (*hostTree) finish(func(*Change, error))    {}
func (*hostTree) close()                         {}

func leftBy(error) string { return "" }
