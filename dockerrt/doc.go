// Package dockerrt makes sandboxes out of Docker: everything that knows the Engine API is here.
//
// A sandbox is a network agbox-net-<id> on a subnet of our own, and a container agbox-primary-<id> on it whose
// PID 1 is agbox-init. Every object carries our labels, with the instance of the daemon that owns it; objects
// without them are never touched.
//
// On the host, below the daemon's data directory:
//
//	exec-logs/<id>/<exec>.stdout.log, .stderr.log   output, in the sandbox at /var/log/agents-sandbox (read-only)
//	exec-logs/<id>/_primary.stdout.log, .stderr.log output of the image's entrypoint
//	exec-results/<id>/<exec>                        how the exec ended, written by agbox-init
//	operation-logs/<id>/log, older                  what was done for the sandbox; no sandbox sees it
//	layers/<id>                                     what it wrote to copy-on-write mounts
//	snapshots/                                      specs of snapshots, with what their images must not show
//	run/<id>/s                                      the socket that agbox-init connects to, in the sandbox at /.agbox/run
package dockerrt
