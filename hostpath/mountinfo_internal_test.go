package hostpath

import (
	"slices"
	"strings"
	"testing"
)

func TestMountTable(t *testing.T) {
	mounts, err := parseMounts(strings.NewReader(`22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 8:1 /home/ann/a\040b /srv/a\040b ro,nosuid shared:2 - ext4 /dev/sda1 rw
31 22 0:40 / /srv/a\040b/mem rw - tmpfs tmpfs rw,size=1k
32 30 0:41 / /srv/a\040b rw - tmpfs tmpfs rw
`))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Mount{ID: "30", Device: "8:1", Root: "/home/ann/a b", Point: "/srv/a b", ReadOnly: true}); len(mounts) != 4 || mounts[1] != want {
		t.Fatalf("got %+v", mounts)
	}
	if below := Below(mounts, "/srv/a b"); !slices.Equal(below, mounts[2:3]) {
		t.Errorf("below: %+v", below)
	}
	if below := Below(mounts, "/"); len(below) != 3 {
		t.Errorf("below the root: %+v", below)
	}
	if last, found := On(mounts, "/srv/a b"); !found || last.ID != "32" {
		t.Errorf("what is seen: %+v, %v", last, found)
	}
	if _, found := On(mounts, "/srv"); found {
		t.Error("nothing is mounted there")
	}
}
