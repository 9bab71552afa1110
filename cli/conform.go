package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kudos/clients/conformance"
	"kudos/config"
)

func (a *app) conformCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "conform [flags] -- COMMAND [ARG…]",
		Short: "Check a client in any language, or what a writer publishes",
		Long: `Check a client of kudos, in any language, or what a writer publishes to Kafka.

COMMAND starts a testee: a small program around a client, which reads requests from its
standard input and answers them. The cases check its events, keys and partitions, ids above
2^53, and what it does when a request is rejected, a connection breaks or a stream ends.
They need neither Kafka nor MySQL. clients/conformance/README.md in the source describes
the protocol. An operation that the testee does not support does not fail.

--topic reads a topic of likes from its start (or --from) up to its current end, and reports
records that are not valid events (kudos moves them to likes.dlt), that are in another
partition than their post's (kudos forwards them, so they are processed twice), or whose
time is more than 60 s after their arrival (kudos caps it). It writes nothing.

Exit codes: 0 nothing failed, 3 a case failed or a record is wrong, 1 not everything ran.`,
		Example: `  kudos conform --list
  kudos conform -- node clients/typescript/testee.mjs
  kudos conform --only '^(react|stream)-' -- ./testee --verbose

  # What did the new writer publish since the last check?
  kudos conform --topic likes --from 0:1018,1:77 --brokers kafka:9092
  kudos conform --topic likes --config kudos.yaml --output json | jq '.dead_letters'`,
		Args: cobra.ArbitraryArgs,
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows COMMAND belongs to it
	only := f.String("only", "", "regular expression: only the cases whose ids match")
	list := f.Bool("list", false, "list the cases, and run none")
	topic := f.String("topic", "", "check the records of this topic, instead of a client")
	from := f.StringSlice("from", nil, "with --topic: where to start, as partition:offset (default: the start)")
	out := addOutput(cmd)
	return addSettings(cmd, brokersFlag).run(func(ctx context.Context, cfg *config.Loaded, args []string) error {
		pattern, err := regexp.Compile(*only)
		starts, errFrom := parseStarts(*from)
		switch err := errors.Join(err, errFrom); {
		case err != nil:
			return usageError{err}
		case *topic != "" && len(args) == 0 && !*list:
			return a.conformTopic(ctx, cfg, *topic, starts, out)
		case *topic != "" || *list == (len(args) > 0):
			return usageError{errors.New("give one of COMMAND, --topic and --list")}
		}
		cases := conformance.Select(pattern)
		if len(cases) == 0 {
			return usageError{fmt.Errorf("--only %s: no case has such an id; see --list", *only)}
		}
		if *list {
			var rows []string
			for _, c := range cases {
				rows = append(rows, c.ID+"\t"+c.About)
			}
			return out.print(a.stdout, cases, aligned(rows))
		}
		phase := a.progress("conform").Begin("running", "cases", int64(len(cases)))
		report, err := conformance.Run(ctx, conformance.Options{Command: args, Cases: cases,
			Timeout: conformance.CaseTimeout, Stderr: a.stderr, Done: func() { phase.Add(1) }})
		phase.End()
		if err == nil && len(report.Failed) > 0 {
			err = differentError{fmt.Errorf("%d cases failed", len(report.Failed))}
		}
		return errors.Join(err, out.print(a.stdout, report, conformText(report)))
	})
}

func parseStarts(list []string) (map[int32]int64, error) {
	starts := map[int32]int64{}
	for _, s := range list {
		partition, offset, _ := strings.Cut(s, ":")
		p, err := strconv.ParseInt(partition, 10, 32)
		o, errOffset := strconv.ParseInt(offset, 10, 64)
		if err != nil || errOffset != nil || p < 0 || o < 0 {
			return nil, fmt.Errorf("--from %q is not partition:offset, such as 3:1018", s)
		}
		starts[int32(p)] = o
	}
	return starts, nil
}

func conformText(r *conformance.Report) string {
	var text strings.Builder
	for _, f := range r.Failed {
		fmt.Fprintf(&text, "FAILED %s: %s\n  request   %s\n  expected  %s\n  got       %s\n", f.ID, f.About, f.Request,
			f.Expected, f.Got)
	}
	fmt.Fprintf(&text, "%d cases passed, %d failed\n", r.Passed, len(r.Failed))
	for _, op := range slices.Sorted(maps.Keys(r.Unsupported)) {
		fmt.Fprintf(&text, "%s is not supported: %d cases did not run\n", op, r.Unsupported[op])
	}
	return text.String()
}

func (a *app) conformTopic(ctx context.Context, cfg *config.Loaded, topic string, from map[int32]int64, out *output,
) error {
	cl, err := cfg.Kafka.NewClient(quietLogger(cfg, a.stderr))
	if err != nil {
		return err
	}
	defer cl.Close()
	phase := a.progress("conform").Begin("reading "+topic, "records", 0)
	r, err := conformance.CheckTopic(ctx, cl, topic, cfg.Topics.Layout().UserBuckets(), from, phase.Add)
	phase.End()
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s: %d valid events in %d partitions; kudos forwarded %d others\n", topic, r.Valid,
		r.Partitions, r.Forwarded)
	add := func(what string, f *conformance.Finding) {
		if f != nil {
			text += fmt.Sprintf("%s: %d, the first in partition %d at offset %d: %s\n", what, f.Records, f.Partition,
				f.Offset, f.Detail)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(r.DeadLetters)) {
		add("not valid: "+string(reason), r.DeadLetters[reason])
	}
	add("in another partition", r.Misrouted)
	add("more than 60 s after their arrival", r.Ahead)
	add("note: more than 24 h before their arrival", r.Late)
	var next []string
	for _, p := range slices.Sorted(maps.Keys(r.Next)) {
		next = append(next, fmt.Sprintf("%d:%d", p, r.Next[p]))
	}
	text += fmt.Sprintf("to check later records only: --from %s\n", strings.Join(next, ","))
	if !r.Passed() {
		err = differentError{fmt.Errorf("records of %s are wrong", topic)}
	}
	return errors.Join(err, out.print(a.stdout, r, text))
}
