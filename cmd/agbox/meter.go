package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/text"
)

// A meter shows nothing of what is over soon.
const (
	meterBegin = time.Second
	meterEvery = 250 * time.Millisecond
)

// meter shows a person at a terminal how far something is, in one line that is written over, until stop is called, which takes the line
// away. Where there is no terminal it shows nothing.
func (a *app) meter(line func() string) (stop func()) {
	if !a.onTerminal() {
		return func() {}
	}
	over := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		for wait := meterBegin; ; wait = meterEvery {
			select {
			case <-time.After(wait):
				fmt.Fprint(a.err, "\r\x1b[Kagbox: "+text.Line(line()))
			case <-over:
				fmt.Fprint(a.err, "\r\x1b[K")
				return
			}
		}
	})
	return func() { close(over); showing.Wait() }
}
