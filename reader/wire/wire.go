// Package wire has the bodies of the reader's answers: what the API and the live
// streams both write. openapi.yaml describes them.
package wire

import (
	"strconv"

	"kudos/schema"
)

// Position is a place in one partition of a topic. As "as of" its offset is that of
// the next record: all before it are covered and none from it on.
type Position struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

func (p Position) String() string {
	return strconv.Itoa(int(p.Partition)) + ":" + strconv.FormatInt(p.Offset, 10)
}

// PostLikes is the counts of a post, as of a place in likes.
type PostLikes struct {
	PostID   uint64   `json:"post_id,string"`
	Likes    int64    `json:"likes"`
	Dislikes int64    `json:"dislikes"`
	AsOf     Position `json:"as_of"`
}

// Ranking is a ranking without what only a recomputation needs.
type Ranking struct {
	Region    string              `json:"region"`
	Window    string              `json:"window"`
	From      schema.Minute       `json:"from"`
	To        schema.Minute       `json:"to"`
	Watermark schema.Minute       `json:"watermark"`
	Posts     []schema.RankedPost `json:"posts"`
	Score     string              `json:"score"`
	HalfLife  string              `json:"half_life,omitempty"`
	TopN      int                 `json:"top_n"`
	MinLikes  int64               `json:"min_likes"`
	// Positions in like-updates.
	Positions []Position `json:"positions"`
}

// NewRanking takes over what is answered.
func NewRanking(r *schema.Ranking) *Ranking {
	w := &Ranking{
		Region: r.Region, Window: r.Window, From: r.From, To: r.To, Watermark: r.Watermark,
		Posts: r.Posts, Score: r.Score, HalfLife: r.HalfLife, TopN: r.TopN, MinLikes: r.MinLikes,
		Positions: make([]Position, len(r.Positions)),
	}
	if w.Posts == nil {
		w.Posts = []schema.RankedPost{} // [] and not null
	}
	for i, p := range r.Positions {
		w.Positions[i] = Position{p.Partition, p.Offset}
	}
	return w
}
