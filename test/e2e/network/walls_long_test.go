//go:build long

package network_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/chaos/proxy"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
	"github.com/agbox-dev/agbox/test/servertest"
)

// A host of the test's own: network, mounts and engine.
//
//	host     its bridges, 198.18.5.1 and 2a00:5::1; a name server on its loopback
//	outside  45.51.100.2, which is public, and all of forbidden
//
// Both tell everything that arrives on port 7000, and so does a sandbox, the neighbour.
const (
	wallsEnv = "AGBOX_TEST_WALLS"
	public   = "45.51.100.2"
)

var attack = []string{"/intruder", "attack"}

// forbidden are addresses beyond the host that no sandbox reaches, each with a prefix of its own.
var forbidden = []string{"169.254.169.254", "10.99.0.7", "172.20.0.7", "192.168.9.7", "100.64.0.7", "198.18.5.2", "2a00:5::7", "fd00:9::7"}

// TestLongWalls attacks from inside of sandboxes, as root with NET_RAW, what they must not reach, in a network of its own.
func TestLongWalls(t *testing.T) {
	if os.Getuid() != 0 {
		skiplog.Skip(t, "needs root: the host is a set of namespaces")
	}
	if os.Getenv(wallsEnv) == "" {
		again := exec.Command("unshare", "--net", "--mount", os.Args[0], "-test.run=^TestLongWalls$", "-test.v", "-test.timeout=8m")
		again.Env = append(os.Environ(), wallsEnv+"=1")
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestLongWalls") {
			t.Errorf("%v\n%s", err, out)
		} else {
			t.Logf("%s", out)
		}
		return
	}
	w := newWalls(t)
	intruder := dockertest.IntruderBinary(t)
	create := func(network *agboxv1.NetworkSpec, services ...*agboxv1.ServiceSpec) string {
		return w.daemon.Create(&agboxv1.CreateSpec{
			Network: network, RequiredServices: services, User: "root", CapAdd: []string{"NET_RAW"},
			Mounts: []*agboxv1.MountSpec{{Source: intruder, Target: "/intruder"}},
		})
	}
	allow := &agboxv1.NetworkSpec{Mode: "allow", Allow: []*agboxv1.NetworkDestination{{Cidr: public, Ports: []uint32{7000}}}}
	victim := create(&agboxv1.NetworkSpec{Private: true})
	w.listen(victim)
	open := create(nil)
	narrow := create(allow, servertest.Web(w.daemon, "db"))
	closed := create(&agboxv1.NetworkSpec{Mode: "none"}, servertest.Web(w.daemon, "db"))
	neighbour, bridge := addressOf(t, w.daemon, victim)
	_, own := addressOf(t, w.daemon, open)
	linkLocal := w.linkLocal(own)
	targets := append([]string{bridge, own, "198.18.5.1", "2a00:5::1", linkLocal, neighbour}, forbidden...)

	// The attack is one: without rules it gets through.
	w.daemon.Stop()
	w.flush("agbox-")
	w.inside(open, append(attack, targets...)...)
	without := w.arrived()
	for _, want := range []string{
		"host: udp to " + own, "host: tcp to 198.18.5.1", "host: 45.77.0.9 to " + own, "host: fd77::9 to 2a00:5::1", "host: 2a00:77::9 to " + linkLocal,
		"outside: udp to 169.254.169.254", "outside: 10.77.0.9 to 169.254.169.254", "outside: tcp to 192.168.9.7", "outside: 2a00:77::9 to 2a00:5::7",
	} {
		if !slices.Contains(without, want) {
			t.Errorf("without rules this does not arrive, so that it tells nothing when it does not later: %s\nthese do: %v", want, without)
		}
	}
	w.daemon.StartAgain()

	attackers := []string{open, narrow, closed, victim}
	stop := w.others(allow)
	for round := range 4 {
		switch round {
		case 1:
			w.flush("agbox-") // our table alone
		case 2:
			w.flush("") // everybody's
		case 3:
			if err := w.proxy.Use(proxy.Rule{Path: regexp.MustCompile(`^/(networks|containers)/(create|agbox)`), Phase: proxy.After, Chance: 0.3, Fault: proxy.Drop()}); err != nil {
				t.Fatal(err)
			}
		}
		if ping, err := w.daemon.Ping(t.Context(), &agboxv1.PingRequest{}); err != nil || !ping.Isolated {
			t.Errorf("round %d: %v, %v", round, ping, err)
		}
		var tries sync.WaitGroup
		for _, id := range attackers {
			tries.Go(func() {
				these := targets
				if id == victim { // what is private is open to it
					these = []string{bridge, own, "198.18.5.1", "2a00:5::1", linkLocal, "2a00:5::7", "fd00:9::7"}
				}
				for range 5 {
					if answers := w.inside(id, append(attack, these...)...); answers != "" {
						w.Errorf("round %d: %s gets %s", round, id, answers)
					}
				}
			})
		}
		tries.Wait()
		if got := w.arrived(); len(got) > 0 {
			t.Errorf("round %d: these arrive: %v", round, got)
		}
	}
	made := stop()
	w.check(w.proxy.Use())
	t.Logf("%d sandboxes came and went, faults: %v", made, w.proxy.Faults())
	for _, id := range []string{open, narrow} {
		w.inside(id, "sh", "-c", "echo 'allowed by "+id+"' | nc -w 2 "+public+" 7000")
	}
	if got := w.arrived(); !slices.Equal(got, []string{"outside: allowed by " + narrow, "outside: allowed by " + open}) &&
		!slices.Equal(got, []string{"outside: allowed by " + open, "outside: allowed by " + narrow}) {
		t.Errorf("of what is allowed this arrives: %v", got)
	}
	w.names(open, narrow, closed)
}

// names: those of the own services resolve everywhere, and only mode internet has the host's own resolver asked.
func (w *walls) names(open string, others ...string) {
	w.Helper()
	w.inside(open, "nslookup", "asked-by-open.test")
	for _, id := range others {
		w.inside(id, "nslookup", "asked-by-others.test")
		if page := w.inside(id, "wget", "-qO-", "http://db:8080/index.html"); page != "hello from db\n" {
			w.Errorf("its service answers %q", page)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if asked := strings.Join(w.asked, " "); !strings.Contains(asked, "asked-by-open") || strings.Contains(asked, "asked-by-others") {
		w.Errorf("the host's resolver is asked for %q", asked)
	}
}
