package stream

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"kudos/stream/kafka"
)

// byItself is the action where retries suffice.
const byItself = "none: kudos retries; check the server that the reason names"

// Status returns the status of the partition.
func (p *Partition) Status() PartitionStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	lag := p.queue.lag() + int64(p.mu.inFlight)
	if p.mu.state != StateRunning { // nothing is fetched
		lag = 0
		if p.mu.position.Offset >= 0 {
			lag = max(0, p.queue.end()-p.mu.position.Offset)
		}
	}
	status := PartitionStatus{Topic: p.assignment.Topic, Partition: p.assignment.Partition, State: p.mu.state,
		Failure: p.mu.failure, Since: p.mu.since, Position: p.mu.position, Lag: lag, hidden: p.mu.hidden}
	if lag > 0 {
		status.Stands = time.Since(p.mu.movedAt)
	}
	if p.mu.state == StateRunning && p.mu.lastFailure != (Failure{}) {
		status.State, status.Failure = StateParked, p.mu.lastFailure
	}
	return status
}

// settled returns the position for dashboards: after the control records behind it, if no record is left.
func (p *Partition) settled() kafka.Position {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.queue.settled(); ok && p.mu.inFlight == 0 && at.Offset > p.mu.position.Offset {
		return at
	}
	return p.mu.position
}

// PartitionStatus is the status of one assigned partition.
type PartitionStatus struct {
	Topic     string         `json:"topic"`
	Partition int32          `json:"partition"`
	State     string         `json:"state"`
	Failure                  // why it is parked or fenced
	Since     time.Time      `json:"since"`
	Position  kafka.Position `json:"position"`
	// Lag is the consumer lag in records, as of the last fetch or the last request for the log's end (every few
	// seconds). It excludes control records that were fetched; while nothing is fetched, it includes them.
	Lag    int64         `json:"lag_records"`
	Stands time.Duration `json:"-"` // how long the position has not moved although there is lag
	hidden hidden
}

// GroupStatus is the status of a group's assigned partitions.
type GroupStatus struct {
	Group      string            `json:"group"`
	Waits      string            `json:"waits,omitempty"` // why there is no assignment
	Partitions []PartitionStatus `json:"partitions"`
}

// ReadyOf returns nil if a group's partitions all run. Otherwise its error names the others, the reason and the action.
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

// Detail returns the status of groups, for people.
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
		text += actionNote(cmp.Or(s.Action, byItself))
	}
	return text
}

// setState is called with mu held.
func (p *Partition) setState(state string, why Failure) {
	if p.mu.state != state || p.mu.failure.Reason != why.Reason {
		p.mu.since = time.Now()
	}
	p.mu.state, p.mu.failure = state, why
}

func (p *Partition) state() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.state
}
