package bench

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// Shape is the distribution of likes over posts.
type Shape struct {
	Name       string `json:"name"`
	Posts      int    `json:"posts"`      // with the ids 1 to Posts
	Skewed     bool   `json:"skewed"`     // post n gets 1/n of the likes of post 1 (Zipf's law); otherwise, uniform
	Partitions int32  `json:"partitions"` // of the topic
}

// Shapes are the shapes of published reports.
func Shapes() []Shape {
	return []Shape{
		{Name: "hot", Posts: 1, Partitions: 1},
		{Name: "skewed-1000", Posts: 1_000, Skewed: true, Partitions: 4},
		{Name: "skewed-1000000", Posts: 1_000_000, Skewed: true, Partitions: 4},
		{Name: "uniform", Posts: 10_000_000, Partitions: 4},
	}
}

// ShapeNames returns the names of Shapes.
func ShapeNames() (names []string) {
	for _, s := range Shapes() {
		names = append(names, s.Name)
	}
	return names
}

// ShapeNamed returns the shape with that name.
func ShapeNamed(name string) (Shape, error) {
	if i := slices.Index(ShapeNames(), name); i >= 0 {
		return Shapes()[i], nil
	}
	return Shape{}, fmt.Errorf("unknown shape %q; must be one of %v", name, ShapeNames())
}

const (
	// baseMs is the event time of the first event. It is fixed, to make streams reproducible.
	baseMs      = 1_750_000_000_000 // June 2025
	eventsPerMs = 20                // events per event time: the backlog of a service with 20,000 likes per second
	// unlikesPer100 events withdraw an earlier like, repeatsPer100 repeat an earlier event.
	unlikesPer100, repeatsPer100 = 5, 5
	userBits                     = 40      // user ids are below 1<<userBits, in random order
	maxEvents                    = 1 << 30 // lets a pair number and an action fit into 32 bits
)

// regions are the users' regions. A user's region never changes.
var regions = [...]schema.Region{
	{'U', 'S'}, {'B', 'R'}, {'I', 'N'}, {'D', 'E'}, {'J', 'P'}, {'N', 'G'}, {'G', 'B'}, {'F', 'R'},
}

// Stream generates the events of a run, reproducibly on every machine for the same seed and shape, and keeps the
// expected counts: per post, how many users have LIKE as their last action. Of 100 events 90 like a new pair (a user
// and a post), 5 unlike a pair and 5 repeat an event, chosen among all earlier ones. It takes some 10 bytes per event.
type Stream struct {
	random  *rand.PCG
	weights []uint64 // cumulative, by post; empty if the distribution is uniform
	posts   uint64

	// events are the pair number of each event, shifted left; the lowest bit is set if it was an unlike.
	events []uint32
	// postOf and liked are by pair. Pairs are numbered in order; the number determines the user.
	postOf []uint32
	liked  []bool
	counts []int32 // by post
	key    uint64
}

// NewStream returns a stream at its first event.
func NewStream(seed uint64, shape Shape) (*Stream, error) {
	if shape.Posts < 1 || shape.Posts > 1<<31 {
		return nil, fmt.Errorf("shape %s: %d posts; must be between 1 and 2^31", shape.Name, shape.Posts)
	}
	s := &Stream{
		random: rand.NewPCG(seed, 0x6b75646f73), // "kudos"
		posts:  uint64(shape.Posts), counts: make([]int32, shape.Posts+1),
	}
	s.key = s.random.Uint64()
	if shape.Skewed {
		// Use integers: floating-point results differ between machines in the last digit.
		s.weights = make([]uint64, shape.Posts)
		sum := uint64(0)
		for i := range s.weights {
			sum += (1 << 40) / uint64(i+1)
			s.weights[i] = sum
		}
	}
	return s, nil
}

// below returns a random number below n. Its bias is at most 1 in 2^32.
func (s *Stream) below(n uint64) uint64 {
	high, _ := bits.Mul64(s.random.Uint64(), n)
	return high
}

// Grow makes room for n more events, so that Next does not have to.
func (s *Stream) Grow(n int) {
	s.events, s.postOf, s.liked = slices.Grow(s.events, n), slices.Grow(s.postOf, n), slices.Grow(s.liked, n)
}

// Next generates the next event. Event times never decrease.
func (s *Stream) Next() (schema.Event, error) {
	n := len(s.events)
	if n == maxEvents {
		return schema.Event{}, errors.New("a stream has at most 2^30 events")
	}
	var event uint32
	switch kind := s.below(100); {
	case n > 0 && kind < unlikesPer100:
		event = uint32(s.below(uint64(len(s.postOf))))<<1 | 1
	case n > 0 && kind < unlikesPer100+repeatsPer100:
		event = s.events[s.below(uint64(n))]
	default:
		event = uint32(len(s.postOf)) << 1
		s.postOf = append(s.postOf, s.post())
		s.liked = append(s.liked, false)
	}
	s.events = append(s.events, event)
	pair, unlike := event>>1, event&1 == 1
	post, user, action, change := s.postOf[pair], s.user(pair), schema.Like, int32(1)
	if unlike {
		action, change = schema.Unlike, -1
	}
	if s.liked[pair] == unlike { // the last action of a pair decides
		s.liked[pair] = !unlike
		s.counts[post] += change
	}
	return schema.Event{PostID: uint64(post), UserID: user, Action: action, Region: regions[user%uint64(len(regions))],
		TimeMs: baseMs + int64(n)/eventsPerMs}, nil
}

func (s *Stream) post() uint32 {
	if len(s.weights) == 0 {
		return uint32(s.below(s.posts)) + 1
	}
	at := s.below(s.weights[len(s.weights)-1])
	i, _ := slices.BinarySearch(s.weights, at+1) // the first one above at
	return uint32(i) + 1
}

// user returns the user of a pair, unique to it. Each step is a bijection of the numbers below 1<<userBits (the mixing
// of SplitMix64 in fewer bits), so consecutive pairs get users in random order.
func (s *Stream) user(pair uint32) uint64 {
	const mask = 1<<userBits - 1
	x := (uint64(pair) + s.key) & mask
	x = (x ^ x>>21) * 0xbf58476d1ce4e5b9 & mask
	x = (x ^ x>>19) * 0x94d049bb133111eb & mask
	x ^= x >> 20
	return cmp.Or(x, 1<<userBits) // user ids are above 0
}

// Events is how many events were generated.
func (s *Stream) Events() int { return len(s.events) }

// Pairs is how many distinct pairs they have.
func (s *Stream) Pairs() int { return len(s.postOf) }

// Likes is the sum of all expected counts.
func (s *Stream) Likes() (sum int64) {
	for _, n := range s.Liked() {
		sum += n
	}
	return sum
}

// Count is the expected count of a post.
func (s *Stream) Count(post uint64) int64 {
	if post >= uint64(len(s.counts)) {
		return 0
	}
	return int64(s.counts[post])
}

// Liked yields the posts with an expected count above 0, in order, with their counts.
func (s *Stream) Liked() iter.Seq2[uint64, int64] {
	return func(yield func(uint64, int64) bool) {
		for post, n := range s.counts {
			if n != 0 && !yield(uint64(post), int64(n)) {
				return
			}
		}
	}
}

// records encodes events as Kafka records. It allocates them in slabs.
type records struct {
	partitions int32
	slab       []kgo.Record
	bytes      []byte
}

const recordSlab = 4096

// of encodes an event. The caller owns the record.
func (r *records) of(e *schema.Event) *kgo.Record {
	if len(r.slab) == 0 {
		r.slab = make([]kgo.Record, recordSlab)
		r.bytes = make([]byte, 0, recordSlab*64)
	}
	rec := &r.slab[0]
	r.slab = r.slab[1:]
	n := len(r.bytes)
	r.bytes = schema.AppendPostKey(r.bytes, e.PostID)
	m := len(r.bytes)
	r.bytes = schema.AppendEvent(r.bytes, e)
	rec.Key, rec.Value = r.bytes[n:m:m], r.bytes[m:len(r.bytes):len(r.bytes)]
	rec.Partition = schema.PartitionFor(e.PostID, r.partitions)
	return rec
}
