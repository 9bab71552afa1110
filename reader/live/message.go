package live

import (
	"encoding/json"
	"fmt"

	"kudos/reader/view"
	"kudos/reader/wire"
)

// message is a value of a subject, encoded once for all streams that show it. Only the
// event id differs between those.
//
// The SSE fields are written here: a library's message has its id inside, and a
// session of go-sse knows no write deadline. (The tests read with go-sse.)
type message struct {
	event  string // likes, trending
	offset int64  // as of which the value is
	data   []byte // JSON, in one line
	sse    []byte // the event's fields but for its id; data is a part of it
}

// value is what a message is made of.
type value interface {
	encode() (*message, error)
}

// postValue is the counts of a post.
type postValue wire.PostLikes

func (v postValue) encode() (*message, error) {
	m, err := encode("likes", v.AsOf.Offset, wire.PostLikes(v))
	if err != nil {
		return nil, fmt.Errorf("encoding the counts of post %d: %w", v.PostID, err)
	}
	return m, nil
}

// sharedValue is a post in several partitions, of which one has changed. Its counts are
// their sum at the time when it is published: values are published one after another, so
// that none is older than the one before, whichever partition that was of.
type sharedValue struct {
	postValue
	likes Likes
}

func (v sharedValue) encode() (*message, error) {
	counts, _, err := v.likes.Counts([]uint64{v.PostID})
	if err != nil {
		return nil, fmt.Errorf("counts of post %d: %w", v.PostID, err)
	}
	v.Likes, v.Dislikes = counts[0].Likes, counts[0].Dislikes
	return v.postValue.encode()
}

// rankingValue is a ranking.
type rankingValue view.Ranking

func (v rankingValue) encode() (*message, error) {
	m, err := encode("trending", v.AsOf.Offset, wire.NewRanking(v.Ranking))
	if err != nil {
		return nil, fmt.Errorf("encoding ranking %s/%s of %s: %w", v.Region, v.Window, v.AsOf, err)
	}
	return m, nil
}

func encode(event string, offset int64, body any) (*message, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	sse := make([]byte, 0, len("event: \ndata: \n\n")+len(event)+len(data))
	sse = append(append(append(sse, "event: "...), event...), "\ndata: "...)
	from := len(sse)
	sse = append(sse, data...)
	to := len(sse)
	sse = append(sse, "\n\n"...)
	return &message{event: event, offset: offset, data: sse[from:to:to], sse: sse}, nil
}
