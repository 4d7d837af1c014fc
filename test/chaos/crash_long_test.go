//go:build long

package chaos_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/chaos/proxy"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// TestLongCrashAtEveryAppend kills the daemon before and after each commit of a sandbox's life, one by one.
func TestLongCrashAtEveryAppend(t *testing.T) {
	t.Parallel()
	engine := dockertest.Engine(t)
	for n, crashed := 1, true; crashed; n++ {
		when := []string{"before", "after"}[(n+1)%2]
		t.Run(fmt.Sprintf("%s commit %d", when, (n+1)/2), func(t *testing.T) {
			crashed = newLife(t, engine).live(fmt.Sprintf("AGBOX_CRASH_AT=%d", n))
		})
		if n > 100 {
			t.Fatal("there is no end to it")
		}
	}
}

// TestLongCrashAtEveryDockerCall kills the daemon before and after each call of a sandbox's life, one by one, those of
// the daemon's start included.
func TestLongCrashAtEveryDockerCall(t *testing.T) {
	t.Parallel()
	engine := dockertest.Engine(t)
	rehearsal := newLife(t, engine)
	if rehearsal.live() {
		t.Fatal("the daemon died though nobody killed it")
	}
	count := map[point]int{}
	points, missed := 0, 0
	for _, call := range rehearsal.proxy.Calls() {
		where := point{call.Method, anyID.ReplaceAllString(strings.ReplaceAll(call.Path, rehearsal.id, "SANDBOX"), "ANY")}
		count[where]++
		for _, phase := range []proxy.Phase{proxy.Before, proxy.After} {
			nth := count[where]
			t.Run(fmt.Sprintf("%s %s %s %d", phase, where.method, where.path, nth), func(t *testing.T) {
				l := newLife(t, engine)
				l.killAt(where, nth, phase)
				points++
				if !l.live() {
					missed++
					t.Log("the call did not come: how often the daemon looks depends on when events reach it")
				}
			})
		}
	}
	if missed*10 > points {
		t.Errorf("%d of %d calls did not come", missed, points)
	}
}

// withServices gives the sandbox a required service with a hook and an optional one.
func (l *life) withServices() *life {
	service := func(name string) *agboxv1.ServiceSpec {
		return &agboxv1.ServiceSpec{
			Name: name, Image: l.spec.Image, Command: []string{"sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"},
			Healthcheck: &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}, Interval: durationpb.New(50 * time.Millisecond)},
		}
	}
	db := service("db")
	db.PostStartOnPrimary = []string{"echo prepared"}
	l.spec.RequiredServices, l.spec.OptionalServices = []*agboxv1.ServiceSpec{db}, []*agboxv1.ServiceSpec{service("cache")}
	l.checker.Services, l.checker.Optional = 1, 1
	return l
}

// TestLongCrashWithServices kills the daemon after each call that changes something in the life of a sandbox with services.
func TestLongCrashWithServices(t *testing.T) {
	t.Parallel()
	engine := dockertest.Engine(t)
	rehearsal := newLife(t, engine).withServices()
	if rehearsal.live() {
		t.Fatal("the daemon died though nobody killed it")
	}
	count := map[point]int{}
	var seen []string
	for _, call := range rehearsal.proxy.Calls() {
		if call.Method == "GET" || call.Method == "HEAD" || strings.HasSuffix(call.Path, "/wait") {
			continue
		}
		where := point{call.Method, anyID.ReplaceAllString(strings.ReplaceAll(call.Path, rehearsal.id, "SANDBOX"), "ANY")}
		count[where]++
		nth := count[where]
		if strings.HasSuffix(call.Path, "/start") && slices.Contains(seen, call.Path) {
			continue // once more, for the resume
		}
		seen = append(seen, call.Path)
		t.Run(fmt.Sprintf("%s %s %d", where.method, where.path, nth), func(t *testing.T) {
			l := newLife(t, engine).withServices()
			l.killAt(where, nth, proxy.After)
			if !l.live() {
				t.Log("the call did not come")
			}
		})
	}
}
