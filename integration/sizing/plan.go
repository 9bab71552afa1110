package sizing

import (
	"errors"
	"fmt"
	"math"
	"time"

	"kudos/schema"
)

// Load is the load to plan for.
type Load struct {
	Posts, Users float64
	// LikesAUser are the pairs that a user has in the end, LikesADay the likes that a user sends per day.
	LikesAUser, LikesADay float64
	// Peak is the rate of the busiest hour as a multiple of the day's average.
	Peak float64
	// Hot is the likes per second of a single post, on top of the rest; Buckets is its number of user buckets.
	Hot     float64
	Buckets int
	// Reads is the counts read per second, and as many of the viewer's reactions; a page of 50 posts counts as 50.
	Reads float64
}

// Largest is the largest load that the design is for.
func Largest() Load {
	return Load{Posts: 1e9, Users: 1e8, LikesAUser: 300, LikesADay: 10, Peak: 5, Hot: 1e5, Buckets: 256, Reads: 1e8}
}

// Validate returns an error if the load is invalid.
func (l Load) Validate() error {
	if min(l.Posts, l.Users, l.LikesAUser, l.LikesADay, l.Reads) < 1 || l.Peak < 1 || l.Hot < 0 || l.Posts > 1e15 ||
		l.Users > 1e15 {
		return errors.New("posts, users, likes, reads and peak must be at least 1, and hot must not be negative")
	}
	if l.Buckets < 1 || l.Buckets > schema.MaxBuckets {
		return fmt.Errorf("%d buckets: must be 1 to %d", l.Buckets, schema.MaxBuckets)
	}
	return nil
}

// Validate returns an error if the choices are invalid.
func (c Choices) Validate() error {
	if c.Cores < 1 || c.Utilization <= 0 || c.Utilization > 1 {
		return errors.New("cores must be at least 1, and utilization above 0 and at most 1")
	}
	return nil
}

// Choices are the machines, and their planned utilization.
type Choices struct {
	Cores       int     // of a processor's machine
	Utilization float64 // of its cores in the busiest hour, and of a partition's maximum rate
	// StateADisk is the most state that one processor holds, in bytes, without the space for compactions.
	StateADisk float64
	// Outage is how long the counts of a partition may stall when the machine of its processor is lost with its disk.
	// With standby replicas (processor.standby), only what they are behind has to be read.
	Outage      time.Duration
	Replicas    float64 // replicas of Kafka's records
	Copies      float64 // replicas of reactions at least: reader.replicas
	LikesKept   time.Duration
	RowsADB     float64 // rows of like_count per server
	ReaderCores int
}

// Usual are the choices of the plan in docs/scaling.md.
func Usual() Choices {
	return Choices{Cores: 8, Utilization: 0.5, StateADisk: 100e9, Outage: 5 * time.Minute, Replicas: 3, Copies: 2,
		LikesKept: 7 * 24 * time.Hour, RowsADB: 250e6, ReaderCores: 8}
}

// Plan is what a load requires.
type Plan struct {
	Load    Load
	Choices Choices
	Units   Units

	Average, Peak                          float64 // events per second, of all posts; the hot post's come on top
	Pairs, StateBytes                      float64
	Processors, Partitions                 int
	PairsAPartition                        float64
	StateADisk                             float64       // bytes, with the space for compactions
	Memory                                 float64       // of a processor
	Recovery                               time.Duration // of one processor's partitions, by the others
	RecoveryAlone                          time.Duration // of one partition
	KafkaCores                             float64       // brokers and databases together
	Kafka                                  float64       // bytes on disk
	KafkaNetwork                           float64       // bytes per second in, at the peak, replicas included
	Databases                              int
	DatabaseBytes                          float64 // of like_count on each
	RowsASecond                            float64 // on each
	Producers, ReadersSingle, ReadersPages int
	ReaderMemory, CoresTotal               float64
	ReactionReaders                        int
	Copies                                 float64       // replicas of reactions
	ReactionsADisk                         float64       // bytes, with the space for compactions
	ReactionRecovery                       time.Duration // of one reader's reactions, by the others
	PartitionsAProcess                     int
	HotAPartition                          float64 // events per second of the hot post in one of its partitions
	PartitionsOfHotPost                    int
}

// New computes the plan.
func New(l Load, c Choices, u Units) Plan {
	p := Plan{Load: l, Choices: c, Units: u}
	p.Average = l.Users * l.LikesADay / (24 * 3600)
	p.Peak = p.Average*l.Peak + l.Hot
	p.Pairs = l.Users * l.LikesAUser
	p.StateBytes = p.Pairs * u.BytesAPair.Value

	byCPU := p.Peak * u.OwnCPU.Value / 1e6 / (float64(c.Cores) * c.Utilization)
	byDisk := p.StateBytes / c.StateADisk
	p.Processors = up(math.Max(byCPU, byDisk))
	// The other processors share the recovery of a lost processor's state.
	lost := p.Pairs / float64(p.Processors)
	p.Processors = max(2, p.Processors, up(lost/(u.Recovery.Value*c.Outage.Seconds()))+1)
	// Several partitions per processor, to spread those of a lost one over others, rounded up to a power of two.
	p.Partitions = 1 << up(math.Log2(float64(8*p.Processors)))
	p.PartitionsAProcess = up(float64(p.Partitions) / float64(p.Processors))
	p.PairsAPartition = p.Pairs / float64(p.Partitions)
	p.StateADisk = 2 * p.StateBytes / float64(p.Processors)
	takers := math.Min(float64(p.PartitionsAProcess), float64(p.Processors-1))
	p.Recovery = seconds(p.PairsAPartition * float64(p.PartitionsAProcess) / takers / u.Recovery.Value)
	p.RecoveryAlone = seconds(p.PairsAPartition / u.Recovery.Value)

	p.Memory = u.Memory.Value*(1<<20) + p.Pairs/float64(p.Processors)*u.FilterBytes.Value
	p.KafkaCores = c.Replicas * p.Peak * u.OthersCPU.Value / 1e6 / c.Utilization
	week := c.LikesKept.Seconds() * p.Average
	tables := 2 * (p.Pairs*u.TableBytes.Value + l.Posts*u.CountBytes.Value)
	p.Kafka = c.Replicas * (week*(u.EventBytes.Value+u.UpdateBytes.Value) + tables)
	p.KafkaNetwork = c.Replicas * p.Peak * (u.EventBytes.Value + u.TableBytes.Value + u.UpdateBytes.Value +
		u.CountBytes.Value)
	p.Databases = up(l.Posts / c.RowsADB)
	p.DatabaseBytes = l.Posts / float64(p.Databases) * u.RowBytes.Value
	p.RowsASecond = p.Peak * u.RowsAnEvent.Value / float64(p.Databases)

	perCores := float64(c.ReaderCores) / cores * c.Utilization
	p.Producers = up(p.Peak / (u.Accepted.Value * perCores))
	p.ReadersSingle = up(l.Reads / (u.Reads.Value * perCores))
	p.ReadersPages = up(l.Reads / (u.Pages.Value * perCores))
	p.ReaderMemory = l.Posts * u.ViewBytes.Value
	p.shareReactions()
	p.CoresTotal = float64(p.Processors*c.Cores+(p.Producers+p.ReadersPages+p.ReactionReaders)*c.ReaderCores) +
		p.KafkaCores
	owners := layoutOf(p).PartitionsOf(hotPost)
	p.PartitionsOfHotPost = len(owners)
	p.HotAPartition = l.Hot / float64(len(owners))
	return p
}

// shareReactions plans the readers that keep reactions: by disk, or by CPU time for new reactions and for questions.
// Each keeps at least one partition, so many readers are many replicas.
func (p *Plan) shareReactions() {
	c, u := p.Choices, p.Units
	all := p.Pairs * u.ReactionBytes.Value
	for copies := c.Copies; p.Copies < copies; copies = math.Ceil(float64(p.ReactionReaders) / float64(p.Partitions)) {
		p.Copies = copies
		busy := copies*p.Peak*u.ReactionCPU.Value/1e6 + p.Load.Reads/u.ReactionsGot.Value*cores // cores
		byCPU := busy / (float64(c.ReaderCores) * c.Utilization)
		p.ReactionReaders = max(up(copies)+1, up(copies*all/c.StateADisk), up(byCPU))
	}
	p.ReactionsADisk = 2 * p.Copies * all / float64(p.ReactionReaders)
	kept := math.Ceil(p.Copies * float64(p.Partitions) / float64(p.ReactionReaders)) // partitions of one reader
	takers := math.Min(kept, float64(p.ReactionReaders-1))
	p.ReactionRecovery = seconds(kept * p.PairsAPartition / takers / u.ReactionRead.Value)
}

func up(x float64) int { return int(math.Ceil(x)) }

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}
