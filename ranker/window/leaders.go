package window

import (
	"slices"

	"kudos/schema"
)

// Leaders are the posts with the most likes of all time in one region. A change of any post is compared with a short
// list: all posts that are not in Best are no better than Floor.
type Leaders struct {
	Best []Post // the best first
	// Floor is at least as good as every post that is not in Best; nil: there is none.
	Floor *Post
}

// spare is how many times the length of a list is kept: so many posts must leave before all others are searched.
const spare = 2

// LeaderOf is a post with its likes of all time; reached is when that count was reached (Unix ms).
func LeaderOf(post uint64, likes, reached int64) Post {
	return Post{ID: post, Likes: likes, Score: schema.Score(likes) * schema.ScoreOne, Reached: reached}
}

// Update sets a post's count. listed tells whether the list may have changed, members whether other posts than before
// are in Best or below Floor. topN is the length of lists, not counting excluded posts.
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

// trim keeps the best most posts, and excluded ones that are better than the last of them.
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

// List is the best topN posts that are not excluded and have minLikes; ok is false if posts that are not in Best may
// belong to it.
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
