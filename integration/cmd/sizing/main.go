// Command sizing computes what a load (default: that of docs/scaling.md) needs, and simulates the busiest hour.
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
	flag.Float64Var(&l.LikesAUser, "likes-a-user", l.LikesAUser, "reactions per user in the end")
	flag.Float64Var(&l.LikesADay, "likes-a-day", l.LikesADay, "likes per user and day")
	flag.Float64Var(&l.Peak, "peak", l.Peak, "rate of the busiest hour, as a multiple of the average")
	flag.Float64Var(&l.Hot, "hot", l.Hot, "likes per second of the hottest post")
	flag.IntVar(&l.Buckets, "buckets", l.Buckets, "user buckets of the hottest post")
	flag.Float64Var(&l.Reads, "reads", l.Reads, "counts read per second")
	flag.IntVar(&c.Cores, "cores", c.Cores, "cores per processor machine")
	flag.Float64Var(&c.Utilization, "utilization", c.Utilization, "planned utilization of the cores, at most 1")
	flag.Parse()
	err := errors.Join(l.Validate(), c.Validate())
	if err == nil {
		units := sizing.Measured()
		err = errors.Join(sizing.WriteMarkdown(os.Stdout, sizing.New(l, c, units)), sizing.WriteUnits(os.Stdout, units))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sizing:", err)
		os.Exit(1)
	}
}
