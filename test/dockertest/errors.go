package dockertest

import "errors"

// ErrNoBusybox says that this machine has no static busybox to make images of.
var ErrNoBusybox = errors.New("dockertest: no static busybox: apt-get install busybox-static")
