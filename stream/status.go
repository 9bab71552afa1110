package stream

import (
	"cmp"
	"fmt"
	"time"
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
		State: c.mu.state, Reason: c.mu.reason, Remedy: c.mu.remedy, Since: c.mu.since,
		Position: c.mu.position, Lag: lag,
	}
	if lag > 0 {
		status.Stands = time.Since(c.mu.movedAt)
	}
	if c.mu.state == StateRunning && c.mu.doubt.reason != "" {
		status.State, status.Reason, status.Remedy = StateParked, c.mu.doubt.reason, c.mu.doubt.remedy
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
	Topic          string
	Partition      int32
	State          string
	Reason, Remedy string
	Since          time.Time
	Position       Position
	// Lag counts the records behind the position, control records not included at
	// the end of the log; with those, as of some seconds ago, unless it is running.
	Lag int64
	// Stands is how long the position has not moved although there is a lag.
	Stands time.Duration
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
