package processor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
)

// causes returns the causes of all partitions that do not run, and of groups without partitions.
func (p *instance) causes() map[stream.Cause]bool {
	causes := map[stream.Cause]bool{}
	for _, group := range p.Detail().([]stream.GroupStatus) {
		for _, s := range group.Partitions {
			if s.State != stream.StateRunning {
				causes[s.Cause] = true
			}
		}
	}
	return causes
}

// A missing topic is named, whether the processor runs or is started, and `kudos topics apply` creates it.
func TestFoldParksAtMissingTopics(t *testing.T) {
	t.Parallel()
	topics := []string{schema.TopicLikes, schema.TopicState, schema.TopicUpdates, schema.TopicCounts, schema.TopicDLT}
	for _, topic := range topics {
		for _, running := range []bool{false, true} {
			t.Run(fmt.Sprint(topic, running), func(t *testing.T) {
				t.Parallel()
				s, p := busySystem(t, betweenRetries)
				if !running {
					p.stop()
				}
				require.NoError(t, s.Broker.DeleteTopic(topic))
				if !running {
					p = s.run()
				} else if topic != schema.TopicLikes {
					s.produce(likes(100, 1)...)
					s.produce(&kgo.Record{Partition: 2, Key: []byte("no post"), Value: []byte("no event")})
				}
				p.waitParked("there is no topic "+topic, "action: kudos topics apply")
				s.waitFor("the cause", func() (bool, any) {
					causes := p.causes()
					return !causes[stream.CauseUnavailable], causes
				})
				if topic == schema.TopicDLT || topic == schema.TopicCounts { // of the others, something is lost
					s.applyTopics()
					s.waitExact(p)
				}
			})
		}
	}
}
