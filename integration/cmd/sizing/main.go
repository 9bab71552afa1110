// Command sizing computes what kudos needs for a load, from measured figures, and simulates the busiest hour. Without
// flags the load is that of docs/scaling.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"kudos/integration/sizing"
)

func main() {
	l, c := sizing.Largest(), sizing.Usual()
	flag.Float64Var(&l.Posts, "posts", l.Posts, "posts with a reaction")
	flag.Float64Var(&l.Users, "users", l.Users, "users")
	flag.Float64Var(&l.LikesAUser, "likes-a-user", l.LikesAUser, "posts that a user has reacted to, in the end")
	flag.Float64Var(&l.LikesADay, "likes-a-day", l.LikesADay, "likes that a user sends a day")
	flag.Float64Var(&l.Peak, "peak", l.Peak, "how many times the average the busiest hour has")
	flag.Float64Var(&l.Hot, "hot", l.Hot, "likes a second of the hottest post")
	flag.IntVar(&l.Buckets, "buckets", l.Buckets, "user buckets of the hottest post")
	flag.Float64Var(&l.Reads, "reads", l.Reads, "reads of counts a second")
	flag.IntVar(&c.Cores, "cores", c.Cores, "cores of a processor's machine")
	flag.Float64Var(&c.Utilization, "utilization", c.Utilization, "share of the cores that is planned for")
	flag.Parse()
	if err := run(l, c); err != nil {
		fmt.Fprintln(os.Stderr, "sizing:", err)
		os.Exit(1)
	}
}

func run(l sizing.Load, c sizing.Choices) error {
	if err := errors.Join(l.Validate(), c.Validate()); err != nil {
		return err
	}
	units := sizing.Measured()
	plan := sizing.New(l, c, units)
	return errors.Join(sizing.WriteMarkdown(os.Stdout, plan), sizing.WriteUnits(os.Stdout, units))
}
