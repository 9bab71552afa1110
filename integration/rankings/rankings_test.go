package rankings

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"kudos/integration/oracle"
	"kudos/schema"
	"kudos/schema/kudosv1"
)

// diary writes a log by hand. Times are in minutes; the append time of a record is its offset in seconds.
type diary struct {
	t               *testing.T
	config          Config
	log             Log
	seq             []uint64
	likes, dislikes map[uint64]int64
}

func newDiary(t *testing.T, partitions int) *diary {
	d := &diary{t: t, seq: make([]uint64, partitions), likes: map[uint64]int64{}, dislikes: map[uint64]int64{},
		config: Config{Windows: []time.Duration{10 * time.Minute, 24 * time.Hour}, Lateness: 2 * time.Minute,
			Score: "count", HalfLife: 30 * time.Minute, TopN: 3, MinLikes: 1}}
	for range partitions {
		d.log.Updates = append(d.log.Updates, &Tape{})
	}
	return d
}

type delta struct {
	region        string
	minute, likes int64
}

func (d *diary) update(partition int, post uint64, deltas ...delta) {
	m := &kudosv1.LikeUpdate{}
	for _, delta := range deltas {
		d.likes[post] += delta.likes
		m.Deltas = append(m.Deltas, &kudosv1.Delta{Region: []byte(delta.region), Minute: delta.minute,
			Likes: delta.likes})
	}
	d.write(partition, strconv.FormatUint(post, 10), post, m)
}

func (d *diary) dislike(partition int, post uint64, region string, minute int64) {
	d.dislikes[post]++
	d.write(partition, strconv.FormatUint(post, 10), post,
		&kudosv1.LikeUpdate{Deltas: []*kudosv1.Delta{{Region: []byte(region), Minute: minute, Dislikes: 1}}})
}

func (d *diary) progress(partition int) { d.write(partition, "_", 0, &kudosv1.LikeUpdate{}) }

func (d *diary) write(partition int, key string, post uint64, m *kudosv1.LikeUpdate) {
	m.Seq, m.LikeCount, m.DislikeCount = d.seq[partition], d.likes[post], d.dislikes[post]
	d.seq[partition]++
	value, err := proto.Marshal(m)
	require.NoError(d.t, err)
	tape := d.log.Updates[partition]
	tape.Add(Record{Offset: tape.End(), TimeMs: 1000 * tape.End(), Key: []byte(key), Value: value})
}

func (d *diary) exclude(post uint64, value string) {
	d.log.Exclusions = append(d.log.Exclusions,
		Record{Offset: int64(len(d.log.Exclusions)), Key: []byte(strconv.FormatUint(post, 10)), Value: []byte(value)})
}

// at returns a position without idle advance and exclusions.
func at(offset int64) schema.RankingPosition {
	return schema.RankingPosition{Offset: offset, Idle: schema.NoMinute}
}

func idle(offset int64, to schema.Minute) schema.RankingPosition {
	return schema.RankingPosition{Offset: offset, Idle: to}
}

// post returns a ranked post whose score is its count, scored one with any score.
func post(id uint64, likes int64) schema.RankedPost {
	return scored(id, likes, schema.Score(likes)*schema.ScoreOne)
}
func scored(id uint64, likes int64, score schema.Score) schema.RankedPost {
	return schema.RankedPost{PostID: id, Likes: likes, Score: score}
}

// ten returns a ranking of the 10m window that ends at 999, and allTime one of all time.
func (d *diary) ten(region string, at []schema.RankingPosition, posts ...schema.RankedPost) *schema.Ranking {
	return d.ranking(region, "10m", 989, 999, 998, at, posts...)
}
func (d *diary) allTime(
	region string, watermark schema.Minute, at []schema.RankingPosition, posts ...schema.RankedPost,
) *schema.Ranking {
	return d.ranking(region, "all", schema.NoMinute, schema.NoMinute, watermark, at, posts...)
}

func (d *diary) ranking(
	region, window string, from, to, watermark schema.Minute, positions []schema.RankingPosition,
	posts ...schema.RankedPost,
) *schema.Ranking {
	r := &schema.Ranking{Version: 1, Region: region, Window: window, Score: d.config.Score, TopN: d.config.TopN,
		MinLikes: d.config.MinLikes, Posts: posts,
		RankingBasis: schema.RankingBasis{From: from, To: to, Watermark: watermark, Positions: positions}}
	if window == "all" || window == "day" {
		r.Score = "count"
	}
	if r.Score == "decay" {
		r.HalfLife = "30m"
	}
	for i := range positions {
		positions[i].Partition = int32(i)
	}
	for i := range posts {
		posts[i].Rank = i + 1
	}
	return r
}

func after(r, last *schema.Ranking) *schema.Ranking {
	r.Previous = &last.RankingBasis
	for i := range r.Posts {
		r.Posts[i].PreviousRank = 0
		for _, before := range last.Posts {
			if before.PostID == r.Posts[i].PostID {
				r.Posts[i].PreviousRank = before.Rank
			}
		}
	}
	return r
}

func (d *diary) check(end *End, rankings ...*schema.Ranking) oracle.Differences {
	d.t.Helper()
	d.log.Rankings = nil
	for i, r := range rankings {
		value, err := schema.EncodeRanking(r)
		require.NoError(d.t, err)
		d.log.Rankings = append(d.log.Rankings,
			Record{Offset: int64(i), Key: []byte(schema.RankingKey(r.Region, r.Window)), Value: value})
	}
	v, err := Check(&d.log, d.config, end)
	require.NoError(d.t, err)
	require.Equal(d.t, len(rankings), v.Rankings)
	return v.Differences
}

func (d *diary) faultless(end *End, rankings ...*schema.Ranking) {
	d.t.Helper()
	found := d.check(end, rankings...)
	require.Zero(d.t, found.Total, found.String())
}

// right requires that a ranking is right, and is wrong with other posts, the result of a likely mistake.
func (d *diary) right(r *schema.Ranking, mistake ...schema.RankedPost) {
	d.t.Helper()
	d.faultless(nil, r)
	wrong := *r
	wrong.Posts = slices.Clone(mistake)
	for i := range wrong.Posts {
		wrong.Posts[i].Rank = i + 1
	}
	d.seen(d.check(nil, &wrong), "posts")
}

func (d *diary) seen(found oracle.Differences, rule string) {
	d.t.Helper()
	require.True(d.t, slices.ContainsFunc(found.Details, func(line string) bool {
		return line[:len(rule)+1] == rule+" "
	}), "no difference violates %s: %s", rule, found.String())
}

func TestTape(t *testing.T) {
	tape, want := &Tape{}, []Record{}
	for i := range 5 {
		r := Record{Offset: int64(3 * i), TimeMs: int64(i) - 1, Key: []byte{byte(i)},
			Value: make([]byte, i*chunkBytes/2)}
		want = append(want, r)
		tape.Add(r)
	}
	require.Equal(t, want, slices.Collect(tape.All()))
	require.EqualValues(t, 13, tape.End())
	tape.EndAt(14)
	require.EqualValues(t, 14, tape.End())
	require.Equal(t, 5, tape.Len())
	require.Panics(t, func() { tape.Add(Record{Offset: 13}) })
}

// The expected weights are from Python's decimal module with 60 digits.
func TestWeight(t *testing.T) {
	for _, c := range []struct{ age, halfLife, want int64 }{
		{0, 30, 1_000_000}, {1, 30, 977_159}, {29, 30, 511_686}, {30, 30, 500_000}, {31, 30, 488_579},
		{60, 30, 250_000}, {59, 30, 255_843}, {60, 45, 396_850}, {597, 30, 1}, {598, 30, 0}, {719, 30, 0},
		{1, 10080, 999_931}, {1440, 10080, 905_723}, {100, 7, 50},
	} {
		require.Equal(t, c.want, weight(c.age, c.halfLife), "age %d, half-life %d", c.age, c.halfLife)
	}
}
