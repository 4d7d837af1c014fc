package spec

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/hostpath"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// ModeCopyOnWrite is the mode of a mount of which the sandbox reads the host's files and writes to a layer of its own. The
// other modes are accepted as MountSpec.writable and no mode.
const (
	ModeCopyOnWrite = "cow"
	modeReadOnly    = "ro"
	modeReadWrite   = "rw"
)

const (
	// A mode that does not exist, or one that says something else than writable.
	ReasonMountModeInvalid = "MOUNT_MODE_INVALID"
	// A directory that the kernel cannot lay a layer over, or not as a whole.
	ReasonMountNotLayered = "MOUNT_COW_UNSUPPORTED"
	// A builtin tool with a mode that it does not have.
	ReasonToolModeInvalid = "BUILTIN_TOOL_MODE_INVALID"
)

// mode tells what a mount of the spec is.
func mode(field string, m *agboxv1.MountSpec) (writable, copyOnWrite bool, err error) {
	switch m.GetMode() {
	case "":
		return m.GetWritable(), false, nil
	case modeReadWrite:
		return true, false, nil
	case modeReadOnly, ModeCopyOnWrite:
		if m.GetWritable() {
			return false, false, refuse(ReasonMountModeInvalid, field, "%q contradicts writable: true; leave out one of the two", m.GetMode())
		}
		return false, m.GetMode() == ModeCopyOnWrite, nil
	}
	return false, false, refuse(ReasonMountModeInvalid, field, "%s is none of %s, %s, %s; use one of them, or leave it out for what writable says",
		quote(m.GetMode()), modeReadOnly, modeReadWrite, ModeCopyOnWrite)
}

// unlayered are the file systems that the kernel, or the host, lays no layer over: names are compared in their own way
// there, or other machines change what is below without this one's knowledge.
var unlayered = map[int64]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS", unix.SMB2_SUPER_MAGIC: "SMB",
	unix.V9FS_MAGIC: "9P", unix.FUSE_SUPER_MAGIC: "FUSE", unix.CEPH_SUPER_MAGIC: "Ceph", unix.AFS_SUPER_MAGIC: "AFS",
	unix.CODA_SUPER_MAGIC: "Coda", unix.MSDOS_SUPER_MAGIC: "FAT", unix.EXFAT_SUPER_MAGIC: "exFAT", unix.AUTOFS_SUPER_MAGIC: "autofs",
	unix.ECRYPTFS_SUPER_MAGIC: "eCryptfs",
}

// layered refuses a directory that cannot be below a layer, with what is mounted below it. source was checked; a file is
// copied, from anywhere.
func layered(field, source string, below []hostpath.Mount) error {
	info, err := os.Lstat(source)
	if err != nil || !info.IsDir() {
		return nil
	}
	var on unix.Statfs_t
	if err := unix.Statfs(source, &on); err != nil {
		return refuse(ReasonSourceUnreadable, field, "%s cannot be looked at by the daemon: %v; give it access or choose another path", quote(source), err)
	}
	if name, found := unlayered[int64(on.Type)]; found {
		return refuse(ReasonMountNotLayered, field, "%s lies on a file system (%s) that cannot be mounted with mode %s; mount it read-only or writable, or copy it in",
			quote(source), name, ModeCopyOnWrite)
	}
	if len(below) > 0 {
		return refuse(ReasonMountNotLayered, field, "%s is mounted in %s, which with mode %s would be seen without it; mount each of the two by itself",
			quote(below[0].Point), quote(source), ModeCopyOnWrite)
	}
	return nil
}

// toolMode splits NAME:rw, by which a tool's files are written through to the host.
func toolMode(field, word string) (name string, through bool, err error) {
	name, mode, given := strings.Cut(word, ":")
	switch {
	case !given, mode == ModeCopyOnWrite:
		return name, false, nil
	case mode == modeReadWrite:
		return name, true, nil
	}
	return "", false, refuse(ReasonToolModeInvalid, field, "%s ends in a mode that is none of %s, %s; write %s for a layer of the sandbox's own, or %s:%s to write to the host's files",
		quote(word), modeReadWrite, ModeCopyOnWrite, name, name, modeReadWrite)
}
