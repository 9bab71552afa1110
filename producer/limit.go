package producer

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// maxBuckets bounds the memory of a limiter, to about 30 MB.
const maxBuckets = 100_000

// limiter has a token bucket for each of the most recently used keys; an evicted key starts again with a full one.
type limiter[K comparable] struct {
	perSecond rate.Limit
	burst     int
	now       func() time.Time

	mu struct {
		sync.Mutex
		buckets *simplelru.LRU[K, *rate.Limiter]
	}
}

// newLimiter returns a limiter with at most size buckets, or nil for a rate of 0: no limit.
func newLimiter[K comparable](perSecond float64, burst, size int) *limiter[K] {
	if perSecond == 0 {
		return nil
	}
	l := &limiter[K]{perSecond: rate.Limit(perSecond), burst: burst, now: time.Now}
	l.mu.buckets, _ = simplelru.NewLRU[K, *rate.Limiter](size, nil) // fails only for a size of 0
	return l
}

// take takes one of the key's tokens and returns 0. If there is none, it returns the time until there is one.
func (l *limiter[K]) take(key K) (wait time.Duration) {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	bucket, ok := l.mu.buckets.Get(key)
	if !ok {
		bucket = rate.NewLimiter(l.perSecond, l.burst)
		l.mu.buckets.Add(key, bucket)
	}
	if bucket.AllowN(now, 1) {
		return 0
	}
	missing := 1 - bucket.TokensAt(now)
	return max(1, time.Duration(missing/float64(l.perSecond)*float64(time.Second)))
}
