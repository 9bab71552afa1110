package stream

import (
	"context"
	"maps"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
	"kudos/stream/store"
)

// session is what one client fetches: partitions of a topic, each started and stopped by itself.
type session struct {
	cl      *kgo.Client
	opts    *ProcessorOptions
	topic   string
	log     kafka.LogID // identifies the topic
	count   int32       // of the topic's partitions
	fetched []int32     // partitions that the client fetches; only the poll loop uses it

	ctx  context.Context
	work sync.WaitGroup // of partitions and watch

	mu struct {
		sync.Mutex
		partitions map[int32]*Partition // copied on write
	}
}

// newSession returns a session until ctx ends, without partitions.
func newSession(ctx context.Context, cl *kgo.Client, opts *ProcessorOptions) (*session, error) {
	topics, err := kafka.LookUpTopics(ctx, cl, opts.Input)
	if err != nil {
		return nil, err
	}
	info := topics.ByName[opts.Input]
	if err := store.CheckFiles(info.Partitions); err != nil {
		return nil, err
	}
	return &session{cl: cl, opts: opts, topic: opts.Input, count: info.Partitions, ctx: ctx,
		log: kafka.LogID{ClusterID: topics.ClusterID, TopicID: info.ID}}, nil
}

// partitions returns the current partitions, in a map that never changes.
func (s *session) partitions() map[int32]*Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.partitions
}

func (s *session) set(n int32, p *Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := make(map[int32]*Partition, len(s.mu.partitions)+1)
	maps.Copy(changed, s.mu.partitions)
	changed[n] = p
	if p == nil {
		delete(changed, n)
	}
	s.mu.partitions = changed
}

// started is a partition that was started.
type started struct {
	*Partition
	cancel context.CancelFunc
	idle   chan struct{} // closed when no batch is in flight, and none will be
	ended  chan struct{} // closed when its worker has left
}

// start starts a partition, which ends when run returns. Its predecessor, if any, closes its files first.
func (s *session) start(p *Partition, cancel context.CancelFunc, before *started, run func()) *started {
	n := p.assignment.Partition
	st := &started{Partition: p, cancel: cancel, idle: make(chan struct{}), ended: make(chan struct{})}
	s.cl.PauseFetchPartitions(map[string][]int32{s.topic: {n}}) // until it is open
	s.set(n, p)
	s.work.Go(func() {
		defer close(st.ended)
		defer cancel()
		if before != nil {
			<-before.ended
		}
		run()
		close(st.idle)
		p.Close()
	})
	return st
}
