package e2b

import (
	"errors"
	"net/http"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

type lifeRequest struct {
	Timeout  *int64 `json:"timeout"`
	Duration *int64 `json:"duration"`
	Memory   *bool  `json:"memory"`
}

// connect gives a sandbox at least so much life from now on, and has a paused one go on. The older one must say how much.
func (c *call) connect(timeoutRequired bool) (int, any, error) {
	var request lifeRequest
	if err := c.read(&request); err != nil {
		return 0, nil, err
	}
	if timeoutRequired && request.Timeout == nil {
		return 0, nil, refused(http.StatusBadRequest, "timeout is missing")
	}
	life, err := timeoutOf(request.Timeout, defaultTimeout)
	if err != nil {
		return 0, nil, err
	}
	b, err := c.settled()
	if err != nil {
		return 0, nil, err
	}
	if b.state == paused {
		b, err = c.goOn(b, life, request.Memory != nil && !*request.Memory)
		return http.StatusCreated, c.answer(b), err
	}
	if err := c.lengthen(b, life); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, c.answer(b), nil
}

// goOn has a paused sandbox go on with so much life. It gets that before it goes on: one whose time was over would be ended at once.
func (c *call) goOn(b box, life time.Duration, anew bool) (box, error) {
	if _, err := c.client.Extend(c.Context(), b.ID, sdk.Extension{MaxDuration: &life}); err != nil {
		return box{}, err
	}
	if b.State == sdk.StatePaused && anew {
		if err := c.client.Stop(c.Context(), b.ID, sdk.WithForce()); err != nil {
			return box{}, err
		}
		b.State = sdk.StateStopped
	}
	var err error
	if b.State == sdk.StateStopped {
		err = c.client.Resume(c.Context(), b.ID)
	} else {
		err = c.client.Unpause(c.Context(), b.ID)
	}
	// Two clients may connect at once: what the other one did is as good.
	if turned := (*sdk.TransitionError)(nil); errors.Is(err, sdk.ErrSandboxInvalidState) || errors.As(err, &turned) {
		if s, reached, waited := c.client.WaitSandbox(c.Context(), b.ID, 0, sdk.StateReady); waited == nil && reached {
			b.Sandbox, err = s, nil
		}
	}
	b.state = running
	return b, err
}

// lengthen moves the end of a running sandbox's life, unless it is later anyway.
func (c *call) lengthen(b box, life time.Duration) error {
	if b.ExpiresAt.IsZero() || !time.Now().Add(life).After(b.ExpiresAt) {
		return nil
	}
	_, err := c.client.Extend(c.Context(), b.ID, sdk.Extension{MaxDuration: &life})
	return err
}

// resume is the older form of connect, for sandboxes that are paused.
func (c *call) resume() (int, any, error) {
	var request lifeRequest
	if err := c.read(&request); err != nil {
		return 0, nil, err
	}
	life, err := timeoutOf(request.Timeout, defaultTimeoutV1)
	if err != nil {
		return 0, nil, err
	}
	b, err := c.settled()
	switch {
	case err != nil:
		return 0, nil, err
	case b.state == running:
		return 0, nil, refused(http.StatusConflict, "sandbox %q is running already", b.ID)
	}
	b, err = c.goOn(b, life, false)
	return http.StatusCreated, c.answer(b), err
}

// kill answers when the sandbox is no longer in any list; what it has goes after that.
func (c *call) kill() (int, any, error) {
	b, err := c.box()
	if err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, c.client.Delete(c.Context(), b.ID, sdk.WithWait(false))
}

// timeout sets how long a running sandbox lives from now on.
func (c *call) timeout() (int, any, error) {
	var request lifeRequest
	if err := c.read(&request); err != nil {
		return 0, nil, err
	}
	if request.Timeout == nil {
		return 0, nil, refused(http.StatusBadRequest, "timeout is missing")
	}
	life, err := timeoutOf(request.Timeout, 0)
	if err != nil {
		return 0, nil, err
	}
	b, err := c.running()
	if err != nil {
		return 0, nil, err
	}
	_, err = c.client.Extend(c.Context(), b.ID, sdk.Extension{MaxDuration: &life})
	return http.StatusNoContent, nil, err
}

// running is box for what is not found of a paused one.
func (c *call) running() (box, error) {
	b, err := c.box()
	if err == nil && b.state != running {
		err = refused(http.StatusNotFound, "sandbox %q is paused: connect to it first", b.ID)
	}
	return b, err
}

// refresh only lengthens a life, by at least 15 seconds from now on.
func (c *call) refresh() (int, any, error) {
	var request lifeRequest
	if err := c.read(&request); err != nil {
		return 0, nil, err
	}
	seconds := int64(0)
	if request.Duration != nil {
		seconds = *request.Duration
	}
	if seconds < 0 || seconds > 3600 {
		return 0, nil, refused(http.StatusBadRequest, "duration is %d: give 0 to 3600 seconds", seconds)
	}
	b, err := c.running()
	if err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, c.lengthen(b, max(time.Duration(seconds)*time.Second, defaultTimeoutV1))
}

// pause freezes a running sandbox, or without its memory stops it, and takes its deadline away. The deadline goes last: a caller that
// hears of no success finds a sandbox that lives as long as it was given.
func (c *call) pause() (int, any, error) {
	var request lifeRequest
	if err := c.read(&request); err != nil {
		return 0, nil, err
	}
	b, err := c.settled()
	if err != nil {
		return 0, nil, err
	}
	if b.state == running {
		if request.Memory != nil && !*request.Memory {
			err = c.client.Stop(c.Context(), b.ID)
		} else {
			err = c.client.Pause(c.Context(), b.ID)
		}
		if err != nil {
			return 0, nil, err
		}
	} else if b.ExpiresAt.IsZero() || b.AutoPause {
		return 0, nil, refused(http.StatusConflict, "sandbox %q is paused already", b.ID)
	}
	never := time.Duration(0)
	_, err = c.client.Extend(c.Context(), b.ID, sdk.Extension{MaxDuration: &never})
	return http.StatusNoContent, nil, err
}
