package pid1

import "os"

// emptyMode removes what is in a directory, which itself stays, and ends:
//
//	agbox-init empty DIRECTORY
//
// It runs as root in a container of its own, where the daemon may not remove what root in a sandbox has written.
func emptyMode(args []string) {
	if len(args) != 1 {
		os.Exit(2)
	}
	entries, err := os.ReadDir(args[0])
	for _, entry := range entries {
		if failed := os.RemoveAll(args[0] + "/" + entry.Name()); err == nil {
			err = failed
		}
	}
	if err != nil {
		warn(err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}
