package schema

import (
	"encoding/json"
	"fmt"
	"time"
)

const MilestoneVersion = 1 // the version of Milestone that this program writes

// Milestone is one record of the topic milestones, with the post id in decimal as its key: a post has reached a number
// of likes. There is one of each post and threshold, ever.
type Milestone struct {
	Version   int       `json:"version"`
	PostID    uint64    `json:"post_id,string"` // a string, because numbers in browsers are exact only up to 2^53
	Threshold int64     `json:"threshold"`
	Likes     int64     `json:"likes"` // after the update that reached it
	Time      time.Time `json:"time"`  // when Kafka appended that update to like-updates
	// Partition and Offset are the update's, in like-updates.
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

// ID identifies the milestone: <post>/<threshold>.
func (m *Milestone) ID() string { return fmt.Sprintf("%d/%d", m.PostID, m.Threshold) }

// EncodeMilestone returns the record's value, JSON on one line.
func EncodeMilestone(m *Milestone) []byte {
	value, _ := json.Marshal(m) // cannot fail: the time is in Unix milliseconds
	return value
}

// DecodeMilestone decodes a record's value. A later version is an error that says so.
func DecodeMilestone(value []byte) (*Milestone, error) {
	m := &Milestone{}
	if err := json.Unmarshal(value, m); err != nil {
		return nil, fmt.Errorf("decoding a milestone: %w", err)
	}
	if m.Version != MilestoneVersion {
		return nil, fmt.Errorf("decoding a milestone: unknown version %d, expected %d; run a later version of kudos",
			m.Version, MilestoneVersion)
	}
	return m, nil
}
