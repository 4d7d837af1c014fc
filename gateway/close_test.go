package gateway_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/agbox-dev/agbox/sdk"
)

// TestCloseEndsRequests: a gateway that is closed has ended what it was answering, whatever net/http knows of it, and answers nothing more.
func TestCloseEndsRequests(t *testing.T) {
	t.Parallel()
	v := visit(t, sdk.Spec{Labels: public})
	arrived, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	host := v.serve(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-over
	})
	ask := func() (err error) {
		defer func() { err, _ = recover().(error) }()
		r := httptest.NewRequest("GET", "http://"+host+"/", nil)
		v.ServeHTTP(httptest.NewRecorder(), r)
		return nil
	}
	ended := make(chan error)
	go func() { ended <- ask() }()
	<-arrived
	v.Down()
	if err := <-ended; !errors.Is(err, http.ErrAbortHandler) {
		t.Errorf("what was being answered ends with %v", err)
	}
	if err := ask(); !errors.Is(err, http.ErrAbortHandler) {
		t.Errorf("a request to what is closed ends with %v", err)
	}
}
