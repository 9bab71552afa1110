package oracle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/text/language"
	"google.golang.org/protobuf/proto"

	"kudos/schema/kudosv1"
)

// Oracle holds what was in the topics at the last check. Not safe for concurrent use.
type Oracle struct {
	brokers []string
	cl      *kgo.Client
	admin   *kadm.Client

	// UserBuckets is the number of user buckets by post. Set it before the first check.
	UserBuckets map[uint64]int
	// Regions count as themselves besides countries.
	Regions []string

	fold   *Fold // nil before the first check
	out    *published
	table  *table
	ledger *ledger
	events int64
}

// New returns an oracle of the system on these brokers. It connects on demand; call Close in the end.
func New(brokers []string) (*Oracle, error) {
	o := &Oracle{brokers: brokers, out: newPublished(), table: newTable(), ledger: newLedger()}
	var err error
	if o.cl, err = o.client(); err != nil {
		return nil, err
	}
	o.admin = kadm.NewClient(o.cl)
	return o, nil
}

// Close closes the connections.
func (o *Oracle) Close() { o.cl.Close() }

func (o *Oracle) client(opts ...kgo.Opt) (*kgo.Client, error) {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(o.brokers...), kgo.DisableClientMetrics()}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("oracle: %w", err)
	}
	return cl, nil
}

// Acknowledged adds events that Kafka acknowledged to clients; the next check looks for them.
func (o *Oracle) Acknowledged(acks []Ack) {
	for _, a := range acks {
		o.ledger.acked[position{a.Partition, a.Offset}] = a.Digest
	}
}

// Saw adds what MySQL was seen to have of a partition; the next check compares it with the log.
func (o *Oracle) Saw(seen Seen) { o.out.saw(seen) }

// Left says what is not folded or applied yet, or "". It reads the log and the databases, not the program, and updates
// before events: if all it finds is folded, so are forwarded events, written in the same transaction as the update.
func (o *Oracle) Left(ctx context.Context, dbs ...*sql.DB) (string, error) {
	updates, err := o.LastRecords(ctx, topicUpdates)
	if err != nil {
		return "", err
	}
	likes, err := o.LastRecords(ctx, topicLikes)
	if err != nil {
		return "", err
	}
	applied := map[int32]Position{}
	for _, db := range dbs {
		positions, err := Positions(ctx, db)
		if err != nil {
			return "", err
		}
		maps.Copy(applied, positions)
	}
	if len(likes) == 0 {
		return "no events", nil
	}
	var left []string
	for _, p := range slices.Sorted(maps.Keys(likes)) {
		var u kudosv1.LikeUpdate
		if last := updates[p]; last != nil {
			if err := proto.Unmarshal(last.Value, &u); err != nil {
				return "", fmt.Errorf("like-updates/%d offset %d: %w", p, last.Offset, err)
			}
		}
		if u.SourceOffset <= likes[p].Offset || applied[p].Seq != u.Seq+1 {
			left = append(left, fmt.Sprintf("partition %d: folded up to %d of %d, applied seq %d of %d", p,
				u.SourceOffset, likes[p].Offset+1, applied[p].Seq, u.Seq+1))
		}
	}
	return strings.Join(left, "; "), nil
}

// Result is the result of a check.
type Result struct {
	Events      int64 // records of likes folded so far, in all checks
	Differences Differences
}

// Deltas returns what the deltas of like-updates add up to, up to the last check, and their number.
func (o *Oracle) Deltas() (map[Cell]Count, int64) { return o.out.cells, o.out.deltas }

// Check reads what is new in the topics, up to MySQL's position, and compares. Nothing may be in flight: everything in
// the log is folded and applied (Left returns ""), and nobody writes.
func (o *Oracle) Check(ctx context.Context, dbs ...*sql.DB) (*Result, error) {
	if err := o.begin(ctx); err != nil {
		return nil, err
	}
	have, err := readSnapshot(ctx, dbs)
	if err != nil {
		return nil, err
	}
	v := &Result{}
	d := &v.Differences
	if err := o.advance(ctx, have, d); err != nil {
		return nil, err
	}
	want := o.fold.Sums()
	Compare(d, "I1", "like_count", want.Posts, have.posts)
	Compare(d, "I1", "like_hourly", want.Hours, have.hours)
	Compare(d, "I2", "reactions in the state table", o.fold.Pairs, o.table.pairs)
	Compare(d, "I2", "voided users in the state table", o.fold.voided, o.table.voided)
	Compare(d, "I2", "counts of the state table against the fold", want.Posts, sumOver(o.table.counts))
	Compare(d, "I2", "counts of the state table against its reactions", o.table.liked(), sumOver(o.table.counts))
	Compare(d, "I5", "deltas of like-updates by post, region and minute", want.Cells, o.out.cells)
	Compare(d, "I5", "counts in like-updates", want.Posts, sumOver(o.out.posts))
	o.ledger.settle(o.fold.next, d)
	v.Events = o.events
	return v, nil
}

func (o *Oracle) begin(ctx context.Context) error {
	if o.fold != nil {
		return nil
	}
	topics, err := o.admin.ListTopics(ctx, topicLikes)
	if err != nil {
		return fmt.Errorf("oracle: %w", err)
	}
	n := len(topics[topicLikes].Partitions)
	if n == 0 {
		return errors.New("oracle: topic likes has no partitions")
	}
	o.fold = NewFold(int32(n))
	o.fold.buckets = o.UserBuckets
	return nil
}

func (o *Oracle) advance(ctx context.Context, have *snapshot, d *Differences) error {
	applied := map[int32]int64{}
	for p, at := range have.positions {
		applied[p] = at.Offset
	}
	err := o.readTo(ctx, topicUpdates, o.out.next, applied, func(rec *kgo.Record) { o.out.add(rec, d) })
	if err != nil {
		return err
	}
	folded := map[int32]int64{}
	for p, at := range have.positions {
		part := o.out.part(p)
		part.hold(p, at, d)
		o.out.reach(p, at.Offset, d)
		if !part.whole {
			d.Add("I3", "MySQL is at %v of like-updates/%d, in the middle of a transaction", at, p)
		}
		folded[p] = part.source
	}
	if err := o.readTo(ctx, topicLikes, o.fold.next, folded, func(rec *kgo.Record) { o.check(rec, d) }); err != nil {
		return err
	}
	for p, source := range folded {
		o.out.part(p).folded(source, d)
	}
	if err := o.readTable(ctx, folded, d); err != nil {
		return err
	}
	letters, err := o.ends(ctx, topicDLT)
	if err != nil {
		return err
	}
	return o.readTo(ctx, topicDLT, o.ledger.nextDLT, letters, func(rec *kgo.Record) { o.ledger.buried(rec, d) })
}

func (o *Oracle) check(rec *kgo.Record, d *Differences) {
	o.events++
	part := o.out.part(rec.Partition)
	part.folded(rec.Offset, d)
	e, poison := Decode(rec.Key, rec.Value)
	at := position{rec.Partition, rec.Offset}
	if poison != "" {
		o.ledger.found(rec, digest(rec.Key, rec.Value), d)
		o.ledger.poison[at] = poison
		return
	}
	o.ledger.found(rec, e.Digest(), d)
	e.Settle(rec.Timestamp.UnixMilli())
	origin := ""
	for _, h := range rec.Headers {
		if h.Key == "kudos.forwarded" {
			origin, _, _ = strings.Cut(string(h.Value), "/") // then, in which layout
		}
	}
	if e.OfUser() {
		o.fold.Void(rec.Partition, e)
		return
	}
	misrouted := o.fold.partitionOf(e.Post, e.User) != rec.Partition
	switch {
	case misrouted && origin != "":
		o.ledger.poison[at] = "misplaced"
		return
	case misrouted:
		o.ledger.misrouted(at, e, d)
		return
	case origin != "":
		o.ledger.forwarded(origin, e, d)
	}
	e.Region = CountedAs(e.Region, o.Regions)
	part.fold = part.fold.plus(o.fold.Add(e, rec.Offset))
}

// notAssigned are codes that the list of countries below has, but that ISO 3166-1 does not assign now.
const notAssigned = "AC AN BU CP CQ CS CT DD DG DY EA EZ FQ FX HV IC JT MI NH NQ NT PC PU PZ RH SU TA TP UK UN VD WK " +
	"XK YD YU ZR"

// CountedAs returns the region under which likes of a region count. extra regions count as themselves.
func CountedAs(region string, extra []string) string {
	if region == "" { // not decoded, but written by a test of the oracle
		return region
	}
	country := region[:2]
	assigned, err := language.ParseRegion(country)
	isCountry := err == nil && assigned.IsCountry() && !strings.Contains(notAssigned, country)
	switch {
	case slices.Contains(extra, region):
		return region
	case isCountry || slices.Contains(extra, country):
		return country
	}
	return unknownRegion
}

// readTable reads the state table up to the transaction whose progress equals the folded position of likes. Its
// progress record is the last one that the transaction writes to that topic.
func (o *Oracle) readTable(ctx context.Context, folded map[int32]int64, d *Differences) error {
	from := map[int32]int64{}
	for p, source := range folded {
		if o.table.source[p] < source {
			from[p] = o.table.next[p]
		}
	}
	err := o.read(ctx, topicTable, from, func(rec *kgo.Record) bool {
		o.table.next[rec.Partition] = rec.Offset + 1
		if !rec.Attrs.IsControl() {
			o.table.add(rec, d)
		}
		return o.table.source[rec.Partition] >= folded[rec.Partition]
	})
	if err != nil {
		return err
	}
	for p, source := range folded {
		if o.table.source[p] > source {
			d.Add("I2", "the state table of partition %d is at offset %d of likes, its updates are at %d", p,
				o.table.source[p], source)
		}
		if o.table.source[p] == source && o.table.seq[p] != o.out.part(p).seq && source > 0 {
			d.Add("I2", "the next seq of partition %d is %d in the state table, %d in its updates", p, o.table.seq[p],
				o.out.part(p).seq)
		}
	}
	return nil
}
