package sql

import (
	"encoding/hex"
	"fmt"
)

// Source is the log whose updates are applied: a topic under the id its cluster gave it, and its partition count.
type Source struct {
	Topic      string
	TopicID    [16]byte
	Partitions int32
}

func (s Source) topicID() string { return hex.EncodeToString(s.TopicID[:]) }

func (s Source) same(topicID string, partitions int32) error {
	if topicID == s.topicID() && partitions == s.Partitions {
		return nil
	}
	stored := Source{Topic: s.Topic, Partitions: partitions}
	if n, err := hex.Decode(stored.TopicID[:], []byte(topicID)); err != nil || n != len(stored.TopicID) {
		return fmt.Errorf("applied_offset holds the topic id %q, which is not 32 hex digits: restore the table from a backup", topicID)
	}
	return &SourceChangedError{Stored: stored, Given: s}
}

// check refuses what only a defect of the caller can give.
func (s *Store) check(src Source, partition int32) error {
	if err := src.check(partition); err != nil {
		return err
	}
	return s.options.Shard.check(partition)
}

// check refuses what only a defect of the caller can give.
func (s Source) check(partition int32) error {
	switch {
	case s.Topic == "" || len(s.Topic) > 249:
		return fmt.Errorf("topic name %q has %d bytes; Kafka allows 1 to 249", s.Topic, len(s.Topic))
	case s.TopicID == [16]byte{}:
		return fmt.Errorf("topic %s has no topic id", s.Topic)
	case s.Partitions < 1 || partition < 0 || partition >= s.Partitions:
		return fmt.Errorf("topic %s has no partition %d (of %d)", s.Topic, partition, s.Partitions)
	}
	return nil
}
