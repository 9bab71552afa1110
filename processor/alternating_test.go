package processor_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/processor"
	"kudos/processor/fold/table"
	"kudos/schema"
)

// ends returns a function that lists the transactional ids of a partition's fold, in the order of commits since the
// last call.
func (s *system) ends(partition int32) (since func() []string) {
	var mu sync.Mutex
	var ids []string
	s.Broker.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
		s.Broker.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		if id := r.(*kmsg.EndTxnRequest).TransactionalID; ofFold(partition, id) {
			ids = append(ids, id)
		}
		return nil, nil, false
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { ids = nil }()
		return ids
	}
}

// New state tables use both transactional ids. A setting changes that, and stays in the state table. The transaction
// that says so uses the first id in any case: builds that know no other one cannot take over in between.
func TestTransactionalIDsOfAStateTable(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	ends, user := s.ends(0), uint64(1)
	both, first := schema.FoldTransactionalIDs(0), slices.Repeat(schema.FoldTransactionalIDs(0)[:1], 3)
	for _, c := range []struct {
		setting int
		want    []string // of three transactions
		two     bool     // in the state table, after the first of them
	}{
		{0, append(both, both[0]), true},
		{1, first, false},
		{0, first, false},
		{2, append(both, both[0]), true},
		{0, append(both, both[0]), true},
	} {
		p := s.run(func(o *processor.Options) { o.TransactionalIDs = c.setting })
		for n := range 3 {
			s.produce(record(like(0, user)))
			user++
			s.waitDrained()
			progress, err := table.LastProgress(t.Context(), s.Client, 0)
			require.NoError(t, err)
			require.Equal(t, c.two, progress.Alternating, "setting %d, transaction %d", c.setting, n)
		}
		require.Equal(t, c.want, ends(), "setting %d", c.setting)
		p.stop()
	}
	s.run()
	s.waitExact()
}
