package bench

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"math/rand/v2"
	"slices"

	"kudos/schema"
)

// Shape is how likes are spread over posts.
type Shape struct {
	Name string `json:"name"`
	// Posts have the ids 1 to Posts.
	Posts int `json:"posts"`
	// Skewed: the post with the id n is liked 1/n as often as the first (Zipf's law). Otherwise all are alike.
	Skewed bool `json:"skewed"`
	// Partitions of the topic.
	Partitions int32 `json:"partitions"`
}

// Shapes are those that are reported.
func Shapes() []Shape {
	return []Shape{
		{Name: "hot", Posts: 1, Partitions: 1},
		{Name: "skewed-1000", Posts: 1_000, Skewed: true, Partitions: 4},
		{Name: "skewed-1000000", Posts: 1_000_000, Skewed: true, Partitions: 4},
		{Name: "uniform", Posts: 10_000_000, Partitions: 4},
	}
}

// ShapeNames are the names of Shapes.
func ShapeNames() (names []string) {
	for _, s := range Shapes() {
		names = append(names, s.Name)
	}
	return names
}

// ShapeNamed is the shape with that name.
func ShapeNamed(name string) (Shape, error) {
	if i := slices.Index(ShapeNames(), name); i >= 0 {
		return Shapes()[i], nil
	}
	return Shape{}, fmt.Errorf("there is no shape %q; there are %v", name, ShapeNames())
}

const (
	// baseMs is the event time of the first event. A fixed one, so that a stream is the same at any time.
	baseMs = 1_750_000_000_000 // June 2025
	// eventsPerMs is how many events have the same time: a backlog of a service with 20,000 likes a second.
	eventsPerMs = 20
	// unlikesPer100 events withdraw an earlier like, repeatsPer100 are an earlier event once more.
	unlikesPer100, repeatsPer100 = 5, 5
	// userBits: user ids are below 1<<userBits, without an order.
	userBits = 40
	// maxEvents keeps the number of a pair and an action in 32 bits.
	maxEvents = 1 << 30
)

// regions are where users live; a user's never changes.
var regions = [...]schema.Region{
	{'U', 'S'}, {'B', 'R'}, {'I', 'N'}, {'D', 'E'}, {'J', 'P'}, {'N', 'G'}, {'G', 'B'}, {'F', 'R'},
}

// Stream makes the events of a run, the same ones for the same seed and shape on every machine, and keeps what must
// come of them: per post, how many users have LIKE as their last action. Of 100 events 90 like a new pair (a user and
// a post), 5 unlike a pair and 5 repeat an event, each chosen among all before. It takes some 10 bytes an event.
type Stream struct {
	random *rand.PCG
	// weights are cumulative, by post; empty where posts are alike.
	weights []uint64
	posts   uint64

	// events are the pair of each, and whether it was an unlike in the lowest bit.
	events []uint32
	// postOf and liked are by pair. Pairs are numbered as they come; the number decides the user.
	postOf []uint32
	liked  []bool
	counts []int32 // by post
	key    uint64
}

// NewStream makes a stream that has not made any event yet.
func NewStream(seed uint64, shape Shape) (*Stream, error) {
	if shape.Posts < 1 || shape.Posts > 1<<31 {
		return nil, fmt.Errorf("shape %s: %d posts; between 1 and 2^31", shape.Name, shape.Posts)
	}
	s := &Stream{
		random: rand.NewPCG(seed, 0x6b75646f73), // "kudos"
		posts:  uint64(shape.Posts),
		counts: make([]int32, shape.Posts+1),
	}
	s.key = s.random.Uint64()
	if shape.Skewed {
		// Whole numbers: floating point differs between machines in the last place.
		s.weights = make([]uint64, shape.Posts)
		sum := uint64(0)
		for i := range s.weights {
			sum += (1 << 40) / uint64(i+1)
			s.weights[i] = sum
		}
	}
	return s, nil
}

// below is a random number below n. (The bias is 1 in 2^32 at most.)
func (s *Stream) below(n uint64) uint64 {
	high, _ := bits.Mul64(s.random.Uint64(), n)
	return high
}

// Next makes one more event. Its time is not below that of the one before.
func (s *Stream) Next() (schema.Event, error) {
	n := len(s.events)
	if n == maxEvents {
		return schema.Event{}, errors.New("a stream has 2^30 events at most")
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
	s.fold(pair, !unlike)
	e := schema.Event{
		PostID: uint64(s.postOf[pair]), UserID: s.user(pair), Action: schema.Like,
		TimeMs: baseMs + int64(n)/eventsPerMs,
	}
	if unlike {
		e.Action = schema.Unlike
	}
	e.Region = regions[e.UserID%uint64(len(regions))]
	return e, nil
}

// fold is all that counting is: the last action of a pair decides.
func (s *Stream) fold(pair uint32, liked bool) {
	if s.liked[pair] == liked {
		return
	}
	s.liked[pair] = liked
	if liked {
		s.counts[s.postOf[pair]]++
	} else {
		s.counts[s.postOf[pair]]--
	}
}

// post chooses the post of a new pair.
func (s *Stream) post() uint32 {
	if len(s.weights) == 0 {
		return uint32(s.below(s.posts)) + 1
	}
	at := s.below(s.weights[len(s.weights)-1])
	i, _ := slices.BinarySearch(s.weights, at+1) // the first above it
	return uint32(i) + 1
}

// user is the user of a pair: no two pairs have the same one. Each step is a bijection of the numbers below
// 1<<userBits (the mixing of SplitMix64 in fewer bits), so numbers that follow each other come out without an order.
func (s *Stream) user(pair uint32) uint64 {
	const mask = 1<<userBits - 1
	x := (uint64(pair) + s.key) & mask
	x = (x ^ x>>21) * 0xbf58476d1ce4e5b9 & mask
	x = (x ^ x>>19) * 0x94d049bb133111eb & mask
	x ^= x >> 20
	return cmp.Or(x, 1<<userBits) // 0 is no user
}

// Events is how many events were made.
func (s *Stream) Events() int { return len(s.events) }

// Pairs is how many different pairs they have.
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

// Liked yields the posts whose expected count is above 0, in order, with their counts.
func (s *Stream) Liked() iter.Seq2[uint64, int64] {
	return func(yield func(uint64, int64) bool) {
		for post, n := range s.counts {
			if n != 0 && !yield(uint64(post), int64(n)) {
				return
			}
		}
	}
}
