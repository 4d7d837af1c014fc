package dockertest

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	passwdRoot  = "root:x:0:0:root:/root:/bin/sh\n"
	passwdAgbox = "agbox:x:1000:1000:agbox:/home/agbox:/bin/sh\n"
	groupRoot   = "root:x:0:\n"
	groupAgbox  = "agbox:x:1000:\n"
	binPath     = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	entrypoint  = `ENTRYPOINT ["/entrypoint"]`
)

var entrypoints = map[Variant]string{
	EntrypointPrepares: `#!/bin/sh
set -e
grep -q ^agbox: /etc/passwd || {
	echo '` + strings.TrimSpace(passwdAgbox) + `' >> /etc/passwd
	echo '` + strings.TrimSpace(groupAgbox) + `' >> /etc/group
	mkdir -p /home/agbox && chown 1000:1000 /home/agbox
}
echo "$(id -u) $*" > /prepared
echo entrypoint: prepared
exec "$@"
`,
	EntrypointExits: `#!/bin/sh
echo entrypoint: giving up >&2
exit 3
`,
	EntrypointStays: `#!/bin/sh
echo entrypoint: waiting
exec sleep 2147483647
`,
}

// content returns the tar of a variant, the same bytes at each call, and its Dockerfile instructions.
func content(v Variant) (rootfs []byte, changes []string, err error) {
	r := newRootfs()
	switch v {
	case NoShell:
		probe, err := probeBinary()
		if err != nil {
			return nil, nil, err
		}
		if err := r.program("bin/probe", probe); err != nil {
			return nil, nil, err
		}
		return r.close(), []string{binPath, `CMD ["probe", "sleep", "24h"]`}, nil
	case RootOnly, ImageUser, EntrypointPrepares:
		err = r.busybox("", "")
	case Busybox, EntrypointExits, EntrypointStays, HealthChecked:
		r.dir("home/agbox", 0o755, 1000)
		err = r.busybox(passwdAgbox, groupAgbox)
	default:
		err = fmt.Errorf("dockertest: unknown variant %q", v)
	}
	if err != nil {
		return nil, nil, err
	}
	changes = []string{binPath, `CMD ["sh"]`}
	if script, ok := entrypoints[v]; ok {
		r.file("entrypoint", []byte(script), 0o755)
		changes = append(changes, entrypoint)
	}
	switch v {
	case ImageUser:
		changes = append(changes, "USER 1234")
	case HealthChecked:
		changes = append(changes, "HEALTHCHECK --interval=1s CMD id -u > /checked")
	}
	return r.close(), changes, nil
}

// rootfs writes a tar in memory. Times and owners are fixed, so equal content gives equal bytes.
type rootfs struct {
	buf bytes.Buffer
	tar *tar.Writer
}

func newRootfs() *rootfs {
	r := new(rootfs)
	r.tar = tar.NewWriter(&r.buf)
	r.dir("bin", 0o755, 0)
	return r
}

// busybox adds the program, its applets and what a login needs; passwd and group follow root's lines.
func (r *rootfs) busybox(passwd, group string) error {
	path, err := staticBusybox()
	if err != nil {
		return err
	}
	applets, err := exec.Command(path, "--list").Output()
	if err != nil {
		return fmt.Errorf("%s --list: %w", path, err)
	}
	if err := r.program("bin/busybox", path); err != nil {
		return err
	}
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" {
			r.entry(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox", Mode: 0o777}, nil)
		}
	}
	r.dir("etc", 0o755, 0)
	r.file("etc/passwd", []byte(passwdRoot+passwd), 0o644)
	r.file("etc/group", []byte(groupRoot+group), 0o644)
	r.dir("root", 0o700, 0)
	r.dir("tmp", 0o1777, 0)
	r.dir("var/tmp", 0o1777, 0)
	return nil
}

func (r *rootfs) program(name, from string) error {
	body, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	r.file(name, body, 0o755)
	return nil
}

func (r *rootfs) dir(name string, mode int64, owner int) {
	r.entry(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner}, nil)
}

func (r *rootfs) file(name string, body []byte, mode int64) {
	r.entry(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(body))}, body)
}

// entry cannot fail: the buffer takes everything, and the names and sizes are ours.
func (r *rootfs) entry(h tar.Header, body []byte) {
	h.Format, h.ModTime = tar.FormatUSTAR, time.Unix(0, 0)
	r.tar.WriteHeader(&h)
	r.tar.Write(body)
}

func (r *rootfs) close() []byte {
	r.tar.Close()
	return r.buf.Bytes()
}

// staticBusybox finds a busybox that runs without libraries.
func staticBusybox() (string, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return "", ErrNoBusybox
	}
	program, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	defer program.Close()
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%w (%s is linked dynamically)", ErrNoBusybox, path)
		}
	}
	return path, nil
}
