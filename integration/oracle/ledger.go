package oracle

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Ack is an event that Kafka acknowledged to a client.
type Ack struct {
	Partition int32
	Offset    int64
	Digest    Digest
}

// ledger holds what must be in the log and has not been found yet.
type ledger struct {
	acked   map[position]Digest
	poison  map[position]string // not in likes.dlt yet, with the reason
	dead    map[position]int    // in likes.dlt, but not found in likes yet
	moved   map[string]Event    // misrouted, without a forwarded copy yet
	copies  map[string]Event    // forwarded copies without an original yet
	nextDLT map[int32]int64
}

func newLedger() *ledger {
	return &ledger{acked: map[position]Digest{}, poison: map[position]string{}, dead: map[position]int{},
		moved: map[string]Event{}, copies: map[string]Event{}, nextDLT: map[int32]int64{}}
}

func (l *ledger) found(rec *kgo.Record, have Digest, d *Differences) {
	at := position{rec.Partition, rec.Offset}
	want, ok := l.acked[at]
	if !ok {
		return // no acknowledgment: its response was lost
	}
	delete(l.acked, at)
	if have != want {
		d.Add("I4", "likes %v holds another event than was acknowledged", at)
	}
}

// misrouted adds a misrouted event, which must have a copy in its right partition; forwarded adds the copy.
func (l *ledger) misrouted(at position, e Event, d *Differences) {
	pairUp(l.moved, l.copies, at.String(), e, d)
}
func (l *ledger) forwarded(origin string, e Event, d *Differences) {
	pairUp(l.copies, l.moved, origin, e, d)
}

func pairUp(here, there map[string]Event, origin string, e Event, d *Differences) {
	other, ok := there[origin]
	switch {
	case ok && other != e:
		d.Add("I6", "the forwarded copy of likes %s is a different event: %+v and %+v", origin, other, e)
		delete(there, origin)
	case ok:
		delete(there, origin)
	default:
		if _, twice := here[origin]; twice {
			d.Add("I6", "likes %s was forwarded twice", origin)
		}
		here[origin] = e
	}
}

func (l *ledger) buried(rec *kgo.Record, d *Differences) {
	header := map[string]string{}
	for _, h := range rec.Headers {
		header[h.Key] = string(h.Value)
	}
	partition, err1 := strconv.ParseInt(header["kudos.partition"], 10, 32)
	offset, err2 := strconv.ParseInt(header["kudos.offset"], 10, 64)
	if err1 != nil || err2 != nil || header["kudos.topic"] != topicLikes || header["kudos.error"] == "" {
		d.Add("I6", "likes.dlt/%d offset %d does not name its origin: %v", rec.Partition, rec.Offset, header)
		return
	}
	l.dead[position{int32(partition), offset}]++
}

func (l *ledger) settle(folded map[int32]int64, d *Differences) {
	for at, n := range l.dead {
		why, ok := l.poison[at]
		switch {
		case !ok:
			d.Add("I6", "likes %v is in likes.dlt %d times, but is not an expected dead letter", at, n)
		case n > 1:
			d.Add("I6", "likes %v (%s) is in likes.dlt %d times", at, why, n)
		}
		delete(l.poison, at)
	}
	clear(l.dead)
	for at, why := range l.poison {
		d.Add("I6", "likes %v (%s) is not in likes.dlt", at, why)
	}
	clear(l.poison)
	for origin := range l.moved {
		d.Add("I6", "likes %s is in the wrong partition and was not forwarded", origin)
	}
	clear(l.moved)
	for origin := range l.copies {
		d.Add("I6", "a forwarded event names likes %s as its origin, which is not misrouted or was already forwarded",
			origin)
	}
	clear(l.copies)
	for at := range l.acked {
		d.Add("I4", "likes %v was acknowledged to a writer and is not in the log, which is folded up to %d", at,
			folded[at.Partition])
	}
	clear(l.acked)
}
