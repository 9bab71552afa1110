package sizing

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"kudos/schema"
)

const hotPost = 42

func layoutOf(p Plan) schema.Layout {
	var hot []string
	if p.Load.Buckets > 1 {
		hot = []string{fmt.Sprintf("%d:%d", hotPost, p.Load.Buckets)}
	}
	buckets, err := schema.ParseUserBuckets(hot)
	layout, errLayout := schema.NewLayout(int32(p.Partitions), buckets)
	if err := errors.Join(err, errLayout); err != nil {
		panic(err) // a bug in the plan
	}
	return layout
}

// Outcome is the result of a simulated busiest hour.
type Outcome struct {
	// The highest utilization of a processor's cores, and of a partition's maximum rate, before the loss.
	BusiestProcessor, BusiestPartition float64
	// Worst is the age of the oldest uncounted like; Caught is how long after the loss no like waited over a second.
	Worst, Caught time.Duration
	// Over: at the end of the hour likes wait longer than a second.
	Over bool
}

const (
	hour  = 3600 // steps of a second
	loses = 600  // when the processor dies
	draws = 300_000
)

// Simulate generates an hour of likes at the peak rate: for posts by Zipf's law, each in its partition, and for the hot
// post from random users, each in the partition of its bucket. Processors take waiting events, limited by a partition's
// maximum rate and by their cores. After ten minutes one processor dies with its disk; its partitions wait for the
// session timeout, and then until the others have recovered their state.
func Simulate(p Plan, seed uint64) Outcome {
	arrivals := arrive(p, seed)
	owner := make([]int, p.Partitions)
	for i := range owner {
		owner[i] = i % p.Processors
	}
	capacity := float64(p.Choices.Cores) / (p.Units.OwnCPU.Value / 1e6)
	var o Outcome
	o.BusiestProcessor, o.BusiestPartition = busiest(p, arrivals, owner, capacity)

	waits := make([]float64, p.Partitions) // events
	away := int(sessionTimeout.Seconds() + p.Recovery.Seconds())
	caught := -1
	for now := range hour {
		if now == loses {
			for i, next := 0, 1; i < p.Partitions; i++ {
				if owner[i] == 0 {
					owner[i] = 1 + next%(p.Processors-1)
					next++
				}
			}
		}
		step(p, arrivals, waits, owner, capacity, now >= loses && now < loses+away)
		oldest := 0.0
		for i := range waits {
			oldest = max(oldest, waits[i]/arrivals[i])
		}
		o.Worst = max(o.Worst, seconds(oldest))
		switch o.Over = oldest > 1; {
		case o.Over:
			caught = -1
		case caught < 0:
			caught = now
		}
	}
	o.Caught = time.Duration(max(caught-loses, 0)) * time.Second
	return o
}

func arrive(p Plan, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	layout := layoutOf(p)
	arrivals := make([]float64, p.Partitions)
	// Few of a billion posts are ever drawn; with an exponent just above 1, one post gets a few percent of all likes.
	zipf := rand.NewZipf(r, 1.05, 1, uint64(p.Load.Posts)-1)
	for range draws {
		arrivals[layout.PartitionOf(1000+zipf.Uint64(), 1)] += (p.Peak - p.Load.Hot) / draws
	}
	for range draws {
		arrivals[layout.PartitionOf(hotPost, 1+r.Uint64N(uint64(p.Load.Users)))] += p.Load.Hot / draws
	}
	return arrivals
}

func busiest(p Plan, arrivals []float64, owner []int, capacity float64) (processor, partition float64) {
	of := make([]float64, p.Processors)
	for i, n := range arrivals {
		of[owner[i]] += n / capacity
		partition = max(partition, n/p.Units.HotRate.Value)
	}
	return slices.Max(of), partition
}

// step simulates a second: events arrive and are taken. lost: those of the dead processor are not taken yet.
func step(p Plan, arrivals, waits []float64, owner []int, capacity float64, lost bool) {
	left := slices.Repeat([]float64{capacity}, p.Processors)
	for i := range waits {
		waits[i] += arrivals[i]
		if lost && i%p.Processors == 0 {
			continue
		}
		take := min(waits[i], left[owner[i]], p.Units.HotRate.Value)
		waits[i] -= take
		left[owner[i]] -= take
	}
}
