package e2b_test

import (
	"net/http"
	"net/url"
	"testing"
)

// TestSnapshots: a snapshot is a template, by its id and by its name; it can be deleted once nobody uses it.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	source := a.create(object{"metadata": object{"of": "source"}})
	plain := a.do(http.StatusCreated, "POST", "/sandboxes/"+source+"/snapshots", nil)
	named := a.do(http.StatusCreated, "POST", "/sandboxes/"+source+"/snapshots", object{"name": "mine:v1"})
	a.do(http.StatusBadRequest, "POST", "/sandboxes/"+source+"/snapshots", object{"name": "Not Possible"})
	if names := plain["names"].([]any); len(names) != 0 {
		t.Errorf("one without a name has %v", names)
	}
	if names := named["names"].([]any); len(names) != 1 || names[0] != "mine:v1" {
		t.Errorf("the named one has %v", names)
	}
	a.do(http.StatusNoContent, "DELETE", "/sandboxes/"+source, nil)
	for query, want := range map[string]int{"": 2, "sandboxID=" + source: 2, "sandboxID=nope": 0, "name=mine": 1, "name=mine:v1": 1, "name=mine:v2": 0, "name=nope": 0} {
		if list, _ := a.list("/snapshots?" + query); len(list) != want {
			t.Errorf("%s: %v", query, list)
		}
	}
	page, header := a.list("/snapshots?limit=1")
	rest, last := a.list("/snapshots?limit=1&nextToken=" + header.Get("X-Next-Token"))
	if len(page) != 1 || len(rest) != 1 || page[0]["snapshotID"] == rest[0]["snapshotID"] || last.Get("X-Next-Token") != "" {
		t.Errorf("the pages are %v and %v", page, rest)
	}
	made := a.create(object{"templateID": "mine:v1", "metadata": object{"of": "copy"}})
	if info := a.info(made); info["templateID"] != "base" || info["metadata"].(object)["of"] != "copy" || len(info["metadata"].(object)) != 1 {
		t.Errorf("what was made of it is %v", info)
	}
	id := named["snapshotID"].(string)
	a.do(http.StatusOK, "GET", "/templates/aliases/"+url.PathEscape("mine:v1"), nil)
	a.do(http.StatusOK, "GET", "/templates/aliases/base", nil)
	a.do(http.StatusNotFound, "GET", "/templates/aliases/nope", nil)
	a.do(http.StatusBadRequest, "DELETE", "/templates/base", nil)
	a.do(http.StatusBadRequest, "DELETE", "/templates/"+id, nil) // in use
	a.do(http.StatusNoContent, "DELETE", "/sandboxes/"+made, nil)
	a.do(http.StatusNoContent, "DELETE", "/templates/"+url.PathEscape("mine:v1"), nil)
	a.do(http.StatusNotFound, "DELETE", "/templates/"+id, nil)
	if list, _ := a.list("/templates"); len(list) != 2 {
		t.Errorf("the templates are %v", list)
	}
}

// TestFork: copies have ids, tokens and lives of their own, and the source's metadata.
func TestFork(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	source := a.create(object{"metadata": object{"of": "source"}})
	path := "/sandboxes/" + source + "/fork"
	a.do(http.StatusBadRequest, "POST", path, object{"count": 0})
	a.do(http.StatusBadRequest, "POST", path, object{"count": 101})
	status, text, _ := a.try("POST", path, object{"count": 2, "timeout": 100})
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, text)
	}
	list, _ := a.list("/v2/sandboxes?metadata=of%3Dsource")
	if len(list) != 3 {
		t.Fatalf("there are %v", ids(list))
	}
	for _, copy := range list[:2] {
		id := copy["sandboxID"].(string)
		result, err := a.client.Run(t.Context(), id, []string{"sh", "-c", "echo $E2B_SANDBOX_ID"})
		if err != nil || string(result.Stdout) != id+"\n" {
			t.Errorf("%s is told that it is %q, %v", id, result.Stdout, err)
		}
	}
}
