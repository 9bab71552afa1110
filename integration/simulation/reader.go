package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/integration/crashdisk"
	"kudos/integration/oracle"
	"kudos/reader/view"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// reader is one run of a reader: its views of like-counts and of the state table, each with all partitions.
type reader struct {
	w      *world
	proc   *process // of its clients and actors; it is no processor
	disk   *crashdisk.Disk
	likes  *view.Likes
	lanes  []*lane
	polls  int
	places *oracle.Fold // where posts are
}

// lane is a view. Its partitions have a session, until the topic is recreated.
type lane struct {
	*view.Lane
	r         *reader
	topic     string
	id        kafka.LogID // of the session
	cancel    context.CancelFunc
	consumers []*consumer
	seen      []int64  // by partition: position of the last answer
	folds     []foldAt // by partition
}

// readerPlan is what a seed determines about the reader. It has a random source of its own: what happens to the reader
// changes nothing for the processors, whose schedule is that of the seed.
type readerPlan struct {
	dice          *rand.Rand
	reading, harm int  // in so many steps of the processors of 1000 the reader runs; of 100 times, faults
	likesLost     bool // likes has lost events, so nothing says what answers have to be
}

const readerRef = "r1"

// readerFaults begin with the start, which is none.
var readerFaults = []fault{
	{"reader: start", nil, func(w *world, _ line) bool {
		return w.reader == nil && w.startReader(crashdisk.New())
	}, false},
	{"reader: crash", nil, func(w *world, l line) bool { return w.crashReader(l.how) }, false},
	{"reader: like-counts compacted", nil, ofLog((*world).compactState), false},
}

func faultNamed(name string) *fault {
	for _, list := range [][]fault{faults, readerFaults} {
		if i := slices.IndexFunc(list, func(f fault) bool { return f.name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

func (l *line) ofReader() bool {
	return l.verb == verbAsk || strings.HasPrefix(l.verb, "reader: ") || strings.HasPrefix(l.who, readerRef)
}

// random returns the random source of whoever runs.
func (w *world) random() *rand.Rand {
	if w.current != nil && w.current.reads {
		return w.dice
	}
	return w.rng
}

// makesReaderWait reports whether the reader would wait before it tries again. Time is the processors'.
func (w *world) makesReaderWait(d decision) bool {
	return w.current != nil && w.current.reads && slices.Contains([]string{"kafka: request lost",
		"kafka: response lost", "kafka: fetch rejected", "kafka: stale end", "kafka: end offset not available"}, d.what)
}

// drawReader draws what happens to the reader after a step of the processors.
func (w *world) drawReader() (lines []line) {
	if w.reader == nil || w.dice.IntN(1000) >= w.reading {
		return nil
	}
	all := w.reader.consumers()
	of := all[w.dice.IntN(len(all))].actor.ref
	switch n := w.dice.IntN(100); {
	case n < w.harm && w.dice.IntN(3) == 0:
		l := w.kafka.log(schema.TopicCounts, w.dice.Int32N(w.plan.partitions))
		return only(line{verb: readerFaults[2].name, who: l.name, n: w.dice.Int64N(l.end() + 1)})
	case n < w.harm:
		how := pickFrom(w.dice, "", diskUnsynced, diskUnsynced, diskLost, diskClosed)
		return only(line{verb: readerFaults[1].name, how: how})
	case n < 40:
		lines = only(line{verb: verbPoll, who: of, n: int64(1 + w.dice.IntN(6))})
	}
	for range 1 + w.dice.IntN(5) {
		lines = append(lines, line{verb: verbRun, who: of, n: 1})
	}
	if w.dice.IntN(4) == 0 {
		lines = append(lines, line{verb: verbAsk})
	}
	return lines
}

// planReader gives one schedule in three a reader: its stores cost more than all processors.
func (w *world) planReader(seed uint64) {
	w.dice = rand.New(rand.NewPCG(seed, 0x726561646572))
	if seed%3 == 0 {
		w.reading, w.harm = pickFrom(w.dice, 30, 200, 700), pickFrom(w.dice, 0, 2, 8)
	}
}

func (w *world) startReader(disk *crashdisk.Disk) bool {
	r := &reader{w: w, disk: disk, proc: &process{w: w, name: "reader"},
		places: oracle.NewFold(w.plan.partitions)}
	options := view.Options{StateDir: "views", CacheBytes: 1 << 20, Reactions: true, Clients: readerClients{r},
		FS: disk}
	r.likes = view.NewLikes(options, kafka.DefaultOptions(), w.log)
	r.lanes = []*lane{{Lane: r.likes.Counts.Lane, r: r, topic: schema.TopicCounts},
		{Lane: r.likes.Reactions.Lane, r: r, topic: schema.TopicState}}
	w.reader = r
	for _, l := range r.lanes {
		l.seen, l.folds = make([]int64, w.plan.partitions), make([]foldAt, w.plan.partitions)
		l.begin()
	}
	return true
}

// begin starts a session, like stream.Follower.
func (l *lane) begin() {
	w := l.r.w
	l.id = w.logID(l.topic)
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel, l.consumers = cancel, nil
	workers := make([]stream.Worker, w.plan.partitions)
	opts := &stream.ProcessorOptions{MaxBatch: w.plan.maxBatch, TickInterval: tickInterval,
		ParkInterval: tickInterval, ShutdownTimeout: 5*time.Second + offGrid}
	for p := range w.plan.partitions {
		c := &consumer{w: w, topic: l.topic, partition: p, ctx: ctx}
		a := stream.Assignment{Topic: l.topic, Partition: p, Log: l.id, Partitions: w.plan.partitions}
		c.stream = stream.NewPartition(a, func(a stream.Assignment) stream.Worker {
			workers[p] = l.View().Worker(a)
			return workers[p]
		}, opts, &readerClient{client{w: w, proc: l.r.proc}}, func() {}, w.log)
		c.actor = w.spawn("reader "+c.name(), readerRef+":"+c.name(), l.r.proc, func() { c.work(c.mustNotPark) })
		c.actor.reads = true
		l.consumers = append(l.consumers, c)
	}
	l.View().Show(workers)
}

func (w *world) logID(topic string) kafka.LogID {
	return kafka.LogID{ClusterID: w.kafka.id, TopicID: w.kafka.topics[topic].id}
}

func (c *consumer) mustNotPark() {
	st := c.stream.Status()
	if st.State != stream.StateRunning {
		c.w.note("%s", st)
	}
	if st.State == stream.StateParked && st.Action != "" && c.ctx.Err() == nil && !c.w.excused[likes(c.partition)] {
		c.w.fail("reader: %s parks without a cause: %s", c.name(), st)
	}
}

// end ends the session. A dead reader's requests fail.
func (l *lane) end() {
	l.cancel()
	for _, c := range l.consumers {
		for n := 0; !c.actor.done && n < 1000; n++ {
			l.r.w.let(c.actor)
		}
		if !c.actor.done {
			l.r.w.fail("%s does not end with its session", c.actor.name)
		}
	}
	l.View().Show(nil)
}

func (r *reader) halt() {
	if r == nil {
		return
	}
	r.proc.dead = true
	for _, l := range r.lanes {
		l.end()
		l.Close()
	}
}

const diskClosed = "shut down" // no crash: everything is written

func (w *world) crashReader(how string) bool {
	r := w.reader
	if r == nil {
		return false
	}
	synctest.Wait() // for what Pebble writes in the background
	disk := copyDisk(r.disk, 100)
	switch how {
	case diskLost:
		w.count("reader: disk lost")
		disk = crashdisk.New()
	case diskUnsynced:
		disk = copyDisk(r.disk, 0)
	}
	r.halt()
	if how == diskClosed {
		disk = r.disk
	}
	return w.startReader(disk)
}

func (r *reader) consumers() []*consumer {
	var list []*consumer
	if r == nil {
		return nil
	}
	for _, l := range r.lanes {
		list = append(list, l.consumers...)
	}
	return list
}

// batches returns how many batches a poll fetches: as written in the script, or 1 to 6 in rotation.
func (r *reader) batches(written int) int {
	if written > 0 {
		return written
	}
	r.polls++
	return 1 + r.polls%6
}

// read lets the reader run until it is idle, and asks it if anything was new.
func (w *world) read() {
	r, n := w.reader, 0
	for busy := r != nil; busy && n < 500 && w.failure == nil; n++ {
		busy = false
		for _, l := range r.lanes {
			if l.id != w.logID(l.topic) {
				l.end()
				l.begin()
			}
		}
		for _, c := range r.consumers() {
			c.poll(func() int { return r.batches(0) })
			w.let(c.actor)
			busy = busy || !c.actor.idle
		}
	}
	if n > 1 {
		r.ask()
	}
}

type readerClients struct{ r *reader }

func (k readerClients) Connect(*slog.Logger) (kafka.Client, error) {
	return &readerClient{client{w: k.r.w, proc: k.r.proc}}, nil
}

func (k readerClients) ConnectTxn(*slog.Logger, string, *kafka.TxnOptions) (kafka.TxnClient, error) {
	return nil, fmt.Errorf("a reader has no transactions")
}

// readerClient is a client whose requests fail without being sent again: the partition is opened again.
type readerClient struct{ client }

func (c *readerClient) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if c.w.happens("reader: request fails", 20) {
		return nil, kerr.UnknownServerError
	}
	return c.client.Request(ctx, req)
}
