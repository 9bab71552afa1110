package reader

import (
	"golang.org/x/sync/semaphore"

	"kudos/httpserver/problem"
)

// slot is the one that a request holds, of those for requests that are worked on or of those for requests that wait.
type slot struct{ of *semaphore.Weighted }

// take takes a slot, and gives back the one that was held.
func (s *slot) take(of *semaphore.Weighted) bool {
	if s.of == of {
		return true
	}
	if !of.TryAcquire(1) {
		return false
	}
	s.release()
	s.of = of
	return true
}

func (s *slot) release() {
	if s.of != nil {
		s.of.Release(1)
		s.of = nil
	}
}

// work takes a slot for a request that can be answered at once.
func (a *api) work(held *slot) error {
	if held.take(a.working) {
		return nil
	}
	return unavailable(problem.TooManyRequests(
		"as many requests are in hand as the reader takes (reader.max_concurrent_requests)"))
}

// wait takes a slot for a request that waits for min_offset, and is answered under it: those that wait take no
// slot from those that need not, neither while they wait nor when all of them end at once.
func (a *api) wait(held *slot) error {
	if held.take(a.waiting) {
		return nil
	}
	return unavailable(problem.TooManyRequests(
		"as many requests wait for %s as the reader takes (reader.max_concurrent_requests)", minOffset))
}
