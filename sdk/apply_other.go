//go:build !linux

package sdk

import (
	"archive/tar"
	"io"
)

type hostTree struct{}

func openSource(*ChangedMount) (*hostTree, error) { return nil, ErrApplyUnsupported }

func (*hostTree) write(*Change, *tar.Header, io.Reader, applyOptions) (string, error) {
	return "", ErrApplyUnsupported
}
func (*hostTree) remove(*Change, applyOptions) string { return ErrApplyUnsupported.Error() }
func (*hostTree) finish(func(*Change, error))         {}
func (*hostTree) close()                              {}

func leftBy(error) string { return "" }
