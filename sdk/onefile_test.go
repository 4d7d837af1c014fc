package sdk_test

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

// TestOneFile: single files go in and out as a user's.
func TestOneFile(t *testing.T) {
	t.Parallel()
	_, socket := sdktest.Start(t)
	client, err := sdk.New(sdk.WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := t.Context()
	box, err := client.CreateSandbox(ctx, sdk.Spec{Image: "image"})
	if err != nil {
		t.Fatal(err)
	}
	as := []sdk.FileOption{sdk.AsUser("user"), sdk.FromHome(), sdk.WithParents()}
	wrote, err := client.WriteFile(ctx, box.ID, "~/a/f", strings.NewReader("content"), append(as, sdk.WithMode(0o600|fs.ModeSetuid))...)
	if err != nil || wrote.Path != "/home/user/a/f" || wrote.Mode != 0o600|fs.ModeSetuid || wrote.UID != 1001 {
		t.Errorf("written: %+v, %v", wrote, err)
	}
	if _, err := client.MakeDirectory(ctx, box.ID, "b/c", as...); err != nil {
		t.Error(err)
	}
	if moved, err := client.MoveFile(ctx, box.ID, "a/f", "b/c/g", as...); err != nil || moved.Path != "/home/user/b/c/g" {
		t.Errorf("moved: %+v, %v", moved, err)
	}
	file, info, err := client.ReadFile(ctx, box.ID, "b/c/g", append(as, sdk.WithRange(1, 3))...)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if part, err := io.ReadAll(file); string(part) != "ont" || err != nil || info.Size != 7 {
		t.Errorf("read %q of %+v, %v", part, info, err)
	}
	if _, _, err := client.ReadFile(ctx, box.ID, "a/f", as...); !errors.Is(err, sdk.ErrFileNotFound) {
		t.Errorf("%v, want that it is not there", err)
	}
}
