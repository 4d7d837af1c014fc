package e2b_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

// TestLife: each call on a sandbox that runs, is paused, or is gone, as the wire has it, over a gateway that was begun anew.
func TestLife(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.create(object{"timeout": 600, "metadata": object{"k": "v"}})
	path, v2 := "/sandboxes/"+id, "/v2/sandboxes/"+id
	end := a.info(id)["endAt"]

	a.do(http.StatusOK, "POST", path+"/connect", object{"timeout": 10})
	if got := a.info(id)["endAt"]; got != end {
		t.Errorf("a connect for less time moved the end from %v to %v", end, got)
	}
	if made := a.do(http.StatusOK, "POST", v2+"/connect", object{"timeout": 3600}); made["envdAccessToken"] != "token of "+id {
		t.Errorf("connect answers %v", made)
	}
	if got := moment(t, a.info(id)["endAt"]); !got.After(moment(t, end)) {
		t.Errorf("a connect for more time left the end at %v", got)
	}
	a.do(http.StatusNoContent, "POST", path+"/timeout", object{"timeout": 100})
	if got := moment(t, a.info(id)["endAt"]); !got.Before(moment(t, end)) {
		t.Errorf("a shorter timeout left the end at %v", got)
	}
	a.do(http.StatusBadRequest, "POST", path+"/timeout", object{})
	a.do(http.StatusBadRequest, "POST", path+"/connect", object{})
	a.do(http.StatusNoContent, "POST", path+"/refreshes", object{"duration": 1000})
	a.do(http.StatusBadRequest, "POST", path+"/refreshes", object{"duration": 3601})
	a.do(http.StatusConflict, "POST", path+"/resume", nil)
	a.do(http.StatusNotImplemented, "PUT", path+"/network", object{})

	a.do(http.StatusNoContent, "POST", path+"/pause", nil)
	a.url = a.gateway() // all that matters is in the daemon
	a.do(http.StatusConflict, "POST", path+"/pause", nil)
	a.do(http.StatusNotFound, "POST", path+"/timeout", object{"timeout": 100})
	a.do(http.StatusNotFound, "POST", path+"/snapshots", nil)
	a.do(http.StatusConflict, "POST", path+"/fork", object{})
	if info := a.info(id); info["state"] != "paused" {
		t.Errorf("it is %v", info["state"])
	}
	if box, err := a.client.GetSandbox(t.Context(), id); err != nil || !box.ExpiresAt.IsZero() {
		t.Errorf("a paused one ends at %v, %v", box.ExpiresAt, err)
	}
	a.do(http.StatusCreated, "POST", v2+"/connect", nil)
	info := a.info(id)
	if left := time.Until(moment(t, info["endAt"])); info["state"] != "running" || left > 5*time.Minute || left < time.Minute {
		t.Errorf("it is %v, for %v", info["state"], left)
	}
	a.do(http.StatusNoContent, "POST", path+"/pause", object{"memory": false})
	a.do(http.StatusCreated, "POST", path+"/resume", object{"timeout": 60})
	a.do(http.StatusNoContent, "POST", path+"/pause", nil)
	a.do(http.StatusCreated, "POST", v2+"/connect", object{"memory": false})

	a.do(http.StatusNoContent, "DELETE", path, nil)
	if list, _ := a.list("/v2/sandboxes"); len(list) != 0 {
		t.Errorf("a killed one is in the list: %v", list)
	}
	for _, call := range []string{"/pause", "/connect", "/timeout", "/resume", "/fork", "/snapshots"} {
		a.do(http.StatusNotFound, "POST", path+call, object{"timeout": 60})
	}
	a.do(http.StatusNotFound, "GET", path, nil)
	a.do(http.StatusNotFound, "DELETE", path, nil)
}

// TestEndOfLife: a sandbox whose time is over is gone, or with autoPause paused until somebody connects.
func TestEndOfLife(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	await := func(id string, state sdk.State) {
		t.Helper()
		if box, reached, err := a.client.WaitSandbox(t.Context(), id, 0, state); err != nil || !reached {
			t.Fatalf("%s is %v, %v; want %v", id, box.State, err, state)
		}
	}
	killed := a.create(object{"timeout": 1})
	await(killed, sdk.StateDeleted)
	a.do(http.StatusNotFound, "GET", "/sandboxes/"+killed, nil)

	for _, c := range []struct {
		request object
		state   sdk.State
	}{
		{object{"timeout": 1, "autoPause": true}, sdk.StatePaused},
		{object{"timeout": 1, "autoPause": true, "autoPauseMemory": false}, sdk.StateStopped},
	} {
		id := a.create(c.request)
		await(id, c.state)
		info := a.info(id)
		if info["state"] != "paused" || info["lifecycle"].(object)["onTimeout"] != "pause" {
			t.Errorf("%v: %v", c.request, info)
		}
		a.do(http.StatusCreated, "POST", "/v2/sandboxes/"+id+"/connect", object{"timeout": 300})
		await(id, sdk.StateReady)
	}
}
