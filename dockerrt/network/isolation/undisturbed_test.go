package isolation

import (
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netns"

	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// TestUndisturbed: rules that somebody changes while they are read are read again, and not for ever.
func TestUndisturbed(t *testing.T) {
	t.Parallel()
	read, generation := 0, uint32(7)
	look := func() (string, error) {
		if read++; read < 3 {
			generation++
			return "chain x: it is missing", nil
		}
		return "", nil
	}
	now := func() (uint32, error) { return generation, nil }
	if difference, err := undisturbed(look, now); difference != "" || err != nil {
		t.Errorf("once nobody changes them the difference is %q, %v", difference, err)
	}
	restless := func() (uint32, error) { generation++; return generation, nil }
	if difference, err := undisturbed(func() (string, error) { return "x", nil }, restless); difference != "x" || err != nil {
		t.Errorf("where they change all the time the difference is %q, %v", difference, err)
	}
}

// TestGeneration: the kernel tells that packet rules have changed.
func TestGeneration(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skiplog.Skip(t, "needs root: a network namespace")
	}
	var host netns.NsHandle
	if err := on(0, func() (err error) { host, err = netns.New(); return }); err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	r := Open("generation", netip.MustParsePrefix("10.0.0.0/16"))
	r.netns = int(host)
	first, err := r.generation()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Install(); err != nil {
		t.Fatal(err)
	}
	if second, err := r.generation(); err != nil || second == first {
		t.Errorf("after a change the generation is %d again, %v", second, err)
	}
}
