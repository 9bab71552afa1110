package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/oracle"
	"kudos/integration/tier"
)

// waitReplicas waits until each partition is kept by so many readers.
func (s *system) waitReplicas(replicas int, readers ...*reader) {
	var bases []string
	for _, r := range readers {
		bases = append(bases, r.base)
	}
	waitSaid(s.t, time.Minute, fmt.Sprintf("%d replicas of each partition", replicas), func() (bool, any) {
		kept, err := oracle.Kept(s.t.Context(), bases...)
		all := err == nil
		for p := range int32(s.partitions) {
			all = all && kept[p] == replicas
		}
		return all, fmt.Sprint(kept, err)
	})
}

// Four readers share out the reactions, each partition to two of them. Any of them answers everything, also while the
// others are killed and restarted one after another, and likes come in: no answer is wrong, and nearly none is missing.
func TestReadersShareReactions(t *testing.T) {
	parallel(t, tier.Test)
	s := newRealSystem(t)
	e := s.exactness()
	var readers []*reader
	for i := range 4 {
		readers = append(readers, s.startReader(fmt.Sprintf("reader-%d", i), "--set", "reader.replicas=2",
			"--set", "reader.advertised_url="+ownBase, "--set", "reader.session_timeout=10s",
			"--set", fmt.Sprintf("reader.zone=%c", 'a'+i%2)))
	}
	for _, r := range readers {
		r.waitReady()
	}
	events := eachPerson.events(t)
	posts, users := hot(events, 8)
	s.waitReplicas(2, readers...)
	first, others := readers[0], readers[1:]
	watched := background(t, func(ctx context.Context) (*oracle.Watched, error) {
		return e.Watch(ctx, first.base, posts, users)
	})
	importFile(s, events)
	processor := s.processor("processor-0", "--set", "processor.max_batch=200").start()
	restart := func(end func(*reader)) {
		for _, r := range others {
			end(r)
			pause(t, time.Second)
			r.start()
			r.waitReady()
			s.waitReplicas(2, readers...)
		}
	}
	restart(func(r *reader) { r.kill() })
	restart(func(r *reader) { r.stop() })
	processor.kill()
	s.processor("processor-1", "--set", "processor.max_batch=1000").start()
	s.drain(2 * time.Minute)
	for _, r := range readers {
		e.wait(r)
	}
	w := watched.stop()
	w.Shared = true
	e.checkWatched(w, 10)
	require.LessOrEqual(t, w.Unavailable, w.Answers()/1000, "answered")
	for _, r := range readers {
		partitions, err := oracle.Kept(t.Context(), r.base)
		require.NoError(t, err)
		require.NotEmpty(t, partitions)
		require.Less(t, len(partitions), int(s.partitions))
	}
	e.require(first, oracle.Everything)

	// One leaves for good: the others replace its replicas.
	others[0].kill()
	s.waitReplicas(2, append([]*reader{first}, others[1:]...)...)
	e.require(first, oracle.Sample)
}
