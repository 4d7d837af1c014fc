package e2b_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestList: filters, orders and pages.
func TestList(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	first := a.create(object{"metadata": object{"a b": "c&d", "n": "1"}})
	second := a.create(object{"metadata": object{"n": "2"}})
	third := a.create(object{"metadata": object{"n": "2"}})
	a.do(http.StatusNoContent, "POST", "/sandboxes/"+second+"/pause", nil)
	started := a.info(second)["startedAt"].(string)
	all := third + " " + second + " " + first
	for query, want := range map[string]string{
		"":                               all,
		"order=asc":                      first + " " + second + " " + third,
		"state=paused":                   second,
		"state=running":                  third + " " + first,
		"state=running,paused":           all,
		"metadata=a%252520b%3Dc%252526d": first, // as the SDK sends it
		"metadata=n%3D2":                 third + " " + second,
		"metadata=n%3D2&state=running":   third,
		"metadata=nope%3D2":              "",
		"template=base":                  all,
		"template=nope":                  "",
		"startedAfter=" + url.QueryEscape(started): third + " " + second,
		"startedAfter=2999-01-01T00:00:00Z":        "",
	} {
		if list, _ := a.list("/v2/sandboxes?" + query); ids(list) != want {
			t.Errorf("%s: %s, want %s", query, ids(list), want)
		}
	}
	if list, _ := a.list("/sandboxes?metadata=n%3D2"); ids(list) != third {
		t.Errorf("the older list has %s", ids(list))
	}
	for _, query := range []string{"order=up", "limit=0", "limit=101", "nextToken=x", "state=gone", "startedAfter=now", "template=base:1"} {
		a.do(http.StatusBadRequest, "GET", "/v2/sandboxes?"+query, nil)
	}
	for order, want := range map[string]string{"desc": all, "asc": first + " " + second + " " + third} {
		var found []string
		token := ""
		for {
			list, header := a.list("/v2/sandboxes?limit=1&order=" + order + "&nextToken=" + token)
			found = append(found, ids(list))
			if token = header.Get("X-Next-Token"); token == "" {
				break
			}
			a.do(http.StatusBadRequest, "GET", "/v2/sandboxes?order="+map[string]string{"asc": "desc", "desc": "asc"}[order]+"&nextToken="+token, nil)
		}
		if strings.Join(found, " ") != want {
			t.Errorf("pages in the order %s: %v, want %s", order, found, want)
		}
	}
}
