//go:build !linux

package sdk

import "errors"

// notify is not tried: files that a virtual machine writes for us cause no notices here.
func (w *watch) notify() (stop func(), err error) { return nil, errors.ErrUnsupported }
