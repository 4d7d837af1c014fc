package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agbox-dev/agbox/cmd/agbox/value"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

// selector collects --label and --state, which stand for all sandboxes that match.
type selector struct {
	labels value.Pairs
	states []string
}

func (s *selector) flags(cmd *cobra.Command, only string) {
	cmd.Flags().VarP(&s.labels, "label", "l", only+" that carry the label; with several, all of them")
	cmd.Flags().StringArrayVar(&s.states, "state", nil, only+" in this state, such as stopped; may be repeated")
}

// check refuses states that there are not.
func (s *selector) check() error {
	return checkStates(s.states, agboxv1.SandboxState_value, "SANDBOX_STATE_")
}

// either wants sandboxes by name, or by label.
func (s *selector) either(_ *cobra.Command, args []string) error {
	if (len(args) > 0) == (len(s.labels.Values) > 0) || len(args) > 0 && len(s.states) > 0 {
		return errors.New("name either sandboxes or a --label")
	}
	return s.check()
}

func (s *selector) selection() sdk.Selection {
	sel := sdk.Selection{Labels: s.labels.Values}
	for _, name := range s.states {
		sel.States = append(sel.States, sdk.State(strings.ToUpper(name)))
	}
	return sel
}

func (s *selector) protoStates() []agboxv1.SandboxState {
	var states []agboxv1.SandboxState
	for _, name := range s.states {
		states = append(states, agboxv1.SandboxState(agboxv1.SandboxState_value["SANDBOX_STATE_"+strings.ToUpper(name)]))
	}
	return states
}

// bulk is a method of the client that takes all selected sandboxes to another state.
type bulk func(*sdk.Client, context.Context, sdk.Selection, ...sdk.WaitOption) ([]string, error)
