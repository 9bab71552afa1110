package window

import (
	"slices"

	"kudos/schema"
)

// Leaders are a region's most liked posts of all time: few, so updates are cheap. No post outside Best beats Floor.
type Leaders struct {
	Best  []Post // best first
	Floor *Post  // at least as good as every post that is not in Best; nil if there are no others
}

const spare = 2 // times a list's length that Best keeps: more posts must drop out before all are searched again

// LeaderOf is a post with its likes of all time; reached is when it reached that count (Unix ms).
func LeaderOf(post uint64, likes, reached int64) Post {
	return Post{ID: post, Likes: likes, Score: schema.Score(likes) * schema.ScoreOne, Reached: reached}
}

// Update sets the count of a post. listed reports whether the list may have changed, and members whether the set of
// posts in Best, or Floor, has changed. topN is the length of lists without excluded posts.
func (l *Leaders) Update(post Post, topN int, excluded func(post uint64) bool) (listed, members bool) {
	at := slices.IndexFunc(l.Best, func(p Post) bool { return p.ID == post.ID })
	if at >= 0 {
		l.Best = slices.Delete(l.Best, at, at+1)
	}
	if post.Likes <= 0 || l.Floor != nil && Better(post, *l.Floor) >= 0 {
		return at >= 0, at >= 0
	}
	to, _ := slices.BinarySearchFunc(l.Best, post, Better)
	l.Best = slices.Insert(l.Best, to, post)
	trimmed := l.trim(spare*topN, excluded)
	return true, at < 0 || trimmed
}

// trim shortens Best to most posts, not counting excluded ones, and sets Floor to the best post that it drops.
func (l *Leaders) trim(most int, excluded func(post uint64) bool) (trimmed bool) {
	over := len(l.Best) - most
	if over <= 0 {
		return false
	}
	for _, p := range l.Best {
		if excluded(p.ID) {
			over--
		}
	}
	n := len(l.Best)
	for ; over > 0; n-- {
		if !excluded(l.Best[n-1].ID) {
			over--
		}
	}
	if n == len(l.Best) {
		return false
	}
	floor := l.Best[n]
	l.Floor, l.Best = &floor, l.Best[:n]
	return true
}

// List returns the topN best posts not excluded, with at least minLikes. ok is false if posts outside Best may belong.
func (l *Leaders) List(topN int, minLikes int64, excluded func(post uint64) bool) (list []Post, ok bool) {
	for _, post := range l.Best {
		if len(list) == topN || post.Likes < minLikes {
			return list, true
		}
		if !excluded(post.ID) {
			list = append(list, post)
		}
	}
	return list, len(list) == topN || l.Floor == nil || l.Floor.Likes < minLikes
}
