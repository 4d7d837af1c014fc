package files_test

import (
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

func stat(t *testing.T, d *servertest.Daemon, id, p string) *agboxv1.FileInfo {
	t.Helper()
	resp, err := d.StatFile(t.Context(), &agboxv1.StatFileRequest{SandboxId: id, Path: p})
	if err != nil {
		t.Fatal(err)
	}
	return resp.File
}
