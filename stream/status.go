package stream

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"kudos/stream/kafka"
)

// byItself is told where a person has nothing to do here.
const byItself = "none: it is tried again until the cause is gone; see to the server that is named"

// status tells how the partition is doing.
func (c *claim) status() PartitionStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	lag := c.lagLocked()
	status := PartitionStatus{
		Topic: c.assignment.Topic, Partition: c.assignment.Partition,
		State: c.mu.state, Trouble: c.mu.trouble, Since: c.mu.since,
		Position: c.mu.position, Lag: lag,
	}
	if lag > 0 {
		status.Stands = time.Since(c.mu.movedAt)
	}
	if c.mu.state == StateRunning && c.mu.doubt != (Trouble{}) {
		status.State, status.Trouble = StateParked, c.mu.doubt
	}
	return status
}

// lagLocked is called with mu held.
func (c *claim) lagLocked() int64 {
	if c.mu.state != StateRunning { // nothing is fetched
		if c.mu.position.Offset < 0 {
			return 0
		}
		return max(0, c.mu.lso-c.mu.position.Offset)
	}
	lag := int64(len(c.mu.pending)) + max(0, c.mu.lso-c.mu.fetched.Offset)
	if c.mu.current != nil {
		lag += int64(len(c.mu.current.Records))
	}
	return lag
}

// PartitionStatus tells how one assigned partition is doing.
type PartitionStatus struct {
	Topic     string         `json:"topic"`
	Partition int32          `json:"partition"`
	State     string         `json:"state"`
	Trouble                  // why, of a parked or fenced one
	Since     time.Time      `json:"since"`
	Position  kafka.Position `json:"position"`
	// Lag counts the records behind the position, as far as fetches and a look every
	// few seconds have told. Control records that have been fetched are not included; where
	// nothing is fetched they are.
	Lag int64 `json:"lag_records"`
	// Stands is how long the position has not moved although there is a lag.
	Stands time.Duration `json:"-"`
}

// GroupStatus tells how a group's assigned partitions are doing.
type GroupStatus struct {
	Group      string            `json:"group"`
	Waits      string            `json:"waits,omitempty"` // why there is no assignment
	Partitions []PartitionStatus `json:"partitions"`
}

// ReadyOf is nil if all partitions of a group are being worked on, and otherwise names those that
// are not, why, and what helps.
func ReadyOf(group string, statuses []PartitionStatus) error {
	var not []string
	for _, s := range statuses {
		if s.State != StateRunning {
			not = append(not, s.String())
		}
	}
	if len(not) > 0 {
		return fmt.Errorf("group %s: %s", group, strings.Join(not, "; "))
	}
	return nil
}

// Detail tells how groups are doing, for people.
func Detail(processors ...*Processor) []GroupStatus {
	groups := make([]GroupStatus, 0, len(processors))
	for _, p := range processors {
		g := GroupStatus{Group: p.opts.Group}
		var err error
		if g.Partitions, err = p.Status(); err != nil {
			g.Waits = err.Error()
		}
		groups = append(groups, g)
	}
	return groups
}

func (s PartitionStatus) String() string {
	text := fmt.Sprintf("%s/%d %s", s.Topic, s.Partition, s.State)
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	if s.State == StateParked {
		text += remedyNote(cmp.Or(s.Remedy, byItself))
	}
	return text
}
