package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/docker/go-units"
	"github.com/spf13/cobra"
)

func tokenCommand(asJSON *bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "Keep the gateway's tokens", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(addCommand(asJSON), listCommand(asJSON), revokeCommand())
	return cmd
}

func addCommand(asJSON *bool) *cobra.Command {
	var t access.Token
	var labels, grants []string
	var memory, rate, expires string
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Make a token and print it, this once",
		Long: `Make a token and print it: it is kept as a hash, and nobody can print it again. Its holder sees and makes sandboxes and
snapshots with its labels alone, within its quotas. A gateway that runs heeds it at once.

--allow lets it ask for what a token otherwise may not: mounts (files of this host), ports (published on this host), gpus,
capabilities, private-network, runtime, and operator (prune, backup, doctor, info, and paths on this host).`,
		Example: "  agbox gateway token add ci --label team=ci --max-sandboxes 20 --max-cpus 8 --max-memory 16g --rate 50/s --expires 30d",
		Args:    cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringArrayVar(&labels, "label", nil, "KEY=VALUE that all has that it makes and sees (default: it sees all there is)")
	f.IntVar(&t.Quota.Sandboxes, "max-sandboxes", 0, "how many sandboxes it may have that are not deleted (default: no limit)")
	f.Float64Var(&t.Quota.CPUs, "max-cpus", 0, "CPUs of all its sandboxes together (default: no limit)")
	f.StringVar(&memory, "max-memory", "", "memory of all its sandboxes together, such as 16g (default: no limit)")
	f.IntVar(&t.Quota.Snapshots, "max-snapshots", 0, "how many snapshots it may have (default: no limit)")
	f.StringVar(&rate, "rate", "", "calls, such as 50/s or 600/m (default: no limit)")
	f.StringVar(&expires, "expires", "", "when it ends, such as 12h or 30d from now (default: never)")
	f.StringArrayVar(&grants, "allow", nil, "what else it may ask for; also separated by commas")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t.Name = args[0]
		if err := complete(&t, labels, grants, memory, rate, expires); err != nil {
			return err
		}
		tokens, err := open()
		if err != nil {
			return err
		}
		secret, err := tokens.Add(t)
		if err != nil {
			return err
		}
		if *asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{"name": t.Name, "token": secret})
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), secret)
		return err
	}
	return cmd
}

// complete reads what flags say in words.
func complete(t *access.Token, labels, grants []string, memory, rate, expires string) error {
	for _, label := range labels {
		key, value, ok := strings.Cut(label, "=")
		if !ok || key == "" {
			return fmt.Errorf("--label %q: want KEY=VALUE", label)
		}
		if t.Labels == nil {
			t.Labels = map[string]string{}
		}
		t.Labels[key] = value
	}
	for name := range strings.SplitSeq(strings.Join(grants, ","), ",") {
		switch grant := access.Grant(strings.TrimSpace(name)); {
		case grant == "":
		case !slices.Contains(access.Grants, grant):
			return fmt.Errorf("--allow %q: there are %v", name, access.Grants)
		default:
			t.Grants = append(t.Grants, grant)
		}
	}
	if t.Quota.Sandboxes < 0 || t.Quota.Snapshots < 0 || !(t.Quota.CPUs >= 0) {
		return errors.New("a quota below zero is none: leave it out for no limit")
	}
	var err error
	if memory != "" {
		if t.Quota.Memory, err = units.RAMInBytes(memory); err != nil || t.Quota.Memory <= 0 {
			return fmt.Errorf("--max-memory %q: want a number of bytes, such as 16g", memory)
		}
	}
	if t.Rate, err = parseRate(rate); err != nil {
		return err
	}
	lasts, err := parseDays(expires)
	if lasts > 0 {
		t.Expires = time.Now().Add(lasts).UTC().Truncate(time.Second)
	}
	return err
}

// parseRate reads calls in a time; "" is 0.
func parseRate(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, unit, _ := strings.Cut(text, "/")
	n, err := strconv.ParseFloat(number, 64)
	in, known := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	if err != nil || !known || !(n > 0 && n < 1e9) {
		return 0, fmt.Errorf("--rate %q: want calls in a time, such as 50/s or 600/m", text)
	}
	return n / in.Seconds(), nil
}

// parseDays is time.ParseDuration that knows days; "" is 0.
func parseDays(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	lasts, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		if n, err = strconv.Atoi(days); n > 36500 {
			n = 36500
		}
		lasts = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || lasts <= 0 {
		return 0, fmt.Errorf("--expires %q: want a time from now, such as 12h or 30d", text)
	}
	return lasts, nil
}

func listCommand(asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the gateway's tokens, not what they are", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tokens, err := open()
			if err != nil {
				return err
			}
			all, err := tokens.List()
			if err != nil {
				return err
			}
			if *asJSON {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				for _, t := range all {
					t.Hash = ""
					if err := encoder.Encode(t); err != nil {
						return err
					}
				}
				return nil
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "NAME\tLABELS\tLIMITS\tALLOWED\tEXPIRES")
			for _, t := range all {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", t.Name, dash(pairs(t.Labels)), dash(limits(t)), dash(grantList(t.Grants)), expiry(t))
			}
			return table.Flush()
		},
	}
}

func pairs(labels map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return strings.Join(all, ",")
}

func limits(t access.Token) string {
	var all []string
	add := func(set bool, format string, value any) {
		if set {
			all = append(all, fmt.Sprintf(format, value))
		}
	}
	add(t.Quota.Sandboxes > 0, "%d sandboxes", t.Quota.Sandboxes)
	add(t.Quota.CPUs > 0, "%g CPUs", t.Quota.CPUs)
	add(t.Quota.Memory > 0, "%s", units.BytesSize(float64(t.Quota.Memory)))
	add(t.Quota.Snapshots > 0, "%d snapshots", t.Quota.Snapshots)
	add(t.Rate > 0, "%.3g/s", t.Rate)
	return strings.Join(all, ", ")
}

func grantList(grants []access.Grant) string {
	var all []string
	for _, grant := range grants {
		all = append(all, string(grant))
	}
	return strings.Join(all, ",")
}

func expiry(t access.Token) string {
	switch {
	case t.Expires.IsZero():
		return "never"
	case !time.Now().Before(t.Expires):
		return "expired"
	}
	return t.Expires.Format("2006-01-02 15:04")
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func revokeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME", Short: "Forget a token: the gateway lets nobody in with it any more", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			tokens, err := open()
			if err != nil {
				return err
			}
			return tokens.Revoke(args[0])
		},
	}
}

func open() (*access.Tokens, error) {
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	return access.OpenTokens(dir)
}
