package processor_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/ops/rebuild"
	"kudos/processor"
	"kudos/schema"
	"kudos/stream"
)

// othersGoOn checks that all partitions but one count the likes of a new user.
func (s *system) othersGoOn(parked int32, user uint64) {
	s.t.Helper()
	before := s.counts()
	s.produce(likes(user, 1)...)
	s.waitFor("the other partitions to continue", func() (bool, any) {
		counts := s.counts()
		for p := range int32(partitions) {
			if p != parked && counts[postIn(p)].Likes != before[postIn(p)].Likes+1 {
				return false, counts
			}
		}
		return true, nil
	})
	require.Equal(s.t, before[postIn(parked)], s.counts()[postIn(parked)], "counts of the parked partition")
}

// emptyTables is the action when MySQL and like-updates do not match: it empties all three at once.
func (s *system) emptyTables() {
	tx := s.db.MustBegin()
	tx.MustExec("DELETE FROM applied_offset")
	tx.MustExec("DELETE FROM like_count")
	tx.MustExec("DELETE FROM like_hourly")
	require.NoError(s.t, tx.Commit())
}

// busySystem returns a system that has counted something in each partition.
func busySystem(t *testing.T, change ...func(*processor.Options)) (*system, *instance) {
	s := newSystem(t)
	p := s.run(change...)
	s.produce(likes(1, 10)...)
	s.waitExact(p)
	return s, p
}

func TestCountsParkWhenTheirPositionIsLost(t *testing.T) {
	t.Parallel()
	s, p := busySystem(t)
	s.db.MustExec("DELETE FROM applied_offset WHERE partition_id = 1")
	p.waitParked("like-updates/1 parked", "no applied_offset row", "action: kudos rebuild")
	s.othersGoOn(1, 100)
	p.waitParked("like-updates/1 parked")
	s.emptyTables()
	s.waitExact(p)
}

func TestCountsParkAtAnotherLog(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"another topic id":        "topic_id = '000000000000000000000000000000aa'",
		"another partition count": "partitions = 8",
		"a position past the end": "next_offset = next_offset + 1000",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := busySystem(t)
			var topicID string
			require.NoError(t, s.db.Get(&topicID, "SELECT topic_id FROM applied_offset WHERE partition_id = 3"))
			position := s.positions()[3]
			s.db.MustExec("UPDATE applied_offset SET " + change + " WHERE partition_id = 3")
			p.waitParked("like-updates/3 parked", "action: kudos rebuild")
			s.othersGoOn(3, 100)
			s.db.MustExec("UPDATE applied_offset SET topic_id = ?, partitions = ?, next_offset = ? WHERE "+
				"partition_id = 3", topicID, partitions, position)
			s.waitExact(p)
		})
	}
}

var rebuilding sync.Mutex // one at a time on the server that the tests share

func (s *system) rebuild(depth rebuild.Depth, person rebuild.Person) {
	s.t.Helper()
	rebuilding.Lock()
	defer rebuilding.Unlock()
	o := rebuild.DefaultOptions()
	o.Depth = depth
	_, err := rebuild.Run(s.t.Context(), o, s.Options, s.mysql, person, s.log)
	require.NoError(s.t, err)
}

// Tables that a migration creates, or that somebody has dropped, are not an unavailable server.
func TestCountsParkAtMissingTables(t *testing.T) {
	t.Parallel()
	const recreate = "drop that table and kudos_schema_version, and delete the rows of trending_position, " +
		"then: kudos migrate, and kudos rebuild"
	for name, c := range map[string]struct{ damage, says, action string }{
		"never migrated": {"DROP TABLE kudos_schema_version, like_count, like_hourly, applied_offset, kudos_shard",
			"schema version is 0, 7 is needed", "(action: kudos migrate)"},
		"older than this version": {"DROP TABLE kudos_shard; DELETE FROM kudos_schema_version WHERE version_id = 7",
			"schema version is 6, 7 is needed", "(action: kudos migrate)"},
		"dropped": {"DROP TABLE like_hourly", "a table is not as kudos created it", recreate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := busySystem(t)
			for damage := range strings.SplitSeq(c.damage, "; ") {
				s.db.MustExec(damage)
			}
			s.produce(likes(100, 1)...)
			if name != "dropped" { // it runs meanwhile
				p.stop()
				p = s.run()
			}
			p.waitParked("like-updates/2 parked", c.says, c.action)
			s.waitFor("the cause", func() (bool, any) {
				causes := p.causes()
				return causes[stream.CauseMySQL] && len(causes) == 1, causes
			})
			p.stop()
			if name == "dropped" {
				s.db.MustExec("DROP TABLE kudos_schema_version")
				s.db.MustExec("DELETE FROM trending_position")
			}
			s.migrate()
			s.rebuild(rebuild.MySQL, agreeable{})
			s.waitExact(s.run())
		})
	}
}

// A record of like-updates is not the next: others were compacted, a log was rewritten, or somebody else wrote to it.
func TestCountsParkAtAGapInTheLog(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]int{"seq jumps": 1, "seq repeats": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := busySystem(t)
			next := s.progress(2).NextSeq
			foreign := schema.Update{Seq: next + uint64(step),
				Deltas: []schema.Delta{{Region: schema.Region{'U', 'S'}, Minute: 1, Likes: 1000}}}
			s.Write(devtest.UpdateRecord(2, postIn(2), foreign))
			p.waitParked("like-updates/2 parked", "expected", "action: kudos rebuild")
			s.othersGoOn(2, 100)
			// The operator finds the cause and moves the position past it.
			at := int64(-1)
			s.updates(2, func(rec *kgo.Record, u schema.Update) {
				if u.Seq == foreign.Seq && len(u.Deltas) == 1 && u.Deltas[0].Likes == 1000 {
					at = rec.Offset
				}
			})
			s.db.MustExec("UPDATE applied_offset SET next_offset = ? WHERE partition_id = 2", at+1)
			s.waitLikes(11, 2)
			p.waitReady()
		})
	}
}

func TestOnlyCountsWaitForMySQL(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	proxy := s.throughProxy()
	p := s.run()
	s.produce(likes(1, 10)...)
	s.waitDrained()
	p.waitReady()
	for round := range uint64(3) {
		proxy.SetUnavailable(true)
		s.produce(likes(100*(round+1), 20)...)
		p.waitParked("like-updates/0", "like-updates/1", "like-updates/2", "like-updates/3", "parked",
			"applied position")
		s.waitFolded()
		require.NotContains(t, p.Ready().Error(), "group latest-like-action", "the fold is ready")
		require.Equal(t, int64(10+20*round), s.counts()[postIn(0)].Likes)
		proxy.SetUnavailable(false)
		s.waitExact(p)
	}
}
