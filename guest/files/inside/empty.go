package inside

import (
	"os"

	"github.com/agbox-dev/agbox/guest/files/removal"
	"github.com/agbox-dev/agbox/guest/kernel"
)

// Empty removes what is in a directory, which itself stays, and ends:
//
//	agbox-init empty DIRECTORY
//
// It runs as root in a container of its own, where the daemon may not remove what root in a sandbox has written.
func Empty(args []string) {
	if len(args) != 1 {
		os.Exit(2)
	}
	if err := removal.Content(args[0]); err != nil {
		kernel.Warn(err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}
