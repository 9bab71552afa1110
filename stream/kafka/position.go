package kafka

// Position is where to go on in a partition: the next offset to read, and the
// leader epoch of the record before it (-1: not known), by which Kafka tells a log
// that was truncated and written again from the one that the offset speaks of.
type Position struct {
	Offset int64 `json:"offset"`
	Epoch  int32 `json:"leader_epoch"`
}

// LogID names one log for good: a topic that was deleted and created anew, or one of
// the same name in another cluster, has another.
type LogID struct {
	ClusterID string
	TopicID   [16]byte
}
