package processor

import (
	"errors"
	"time"
)

// Options of the processor role.
type Options struct {
	// StateDir is a cache of the state table, a directory per partition: deleting it only costs a recovery from Kafka.
	StateDir string `mapstructure:"state_dir"`
	MaxBatch int    `mapstructure:"max_batch"` // most events of a partition in one transaction
	// CollectFor is how long events are collected for a batch, after a pause not at all, and not while behind: more
	// transactions cost CPU, of Kafka and MySQL too, fewer cost latency.
	CollectFor time.Duration `mapstructure:"collect_for"`
	CacheBytes int64         `mapstructure:"cache_bytes"` // memory of the state table's block cache, for all partitions
	// BufferBytes is the state table's write buffers, of all partitions. After a kill, up to a fourth is read again.
	BufferBytes int64 `mapstructure:"buffer_bytes"`
	// Standby keeps replicas of partitions that others own: a takeover then reads only the rest of the changelog.
	Standby bool `mapstructure:"standby"`
	// TransactionTimeout is how long Kafka keeps a dead process's transaction open, blocking read_committed consumers.
	TransactionTimeout time.Duration `mapstructure:"transaction_timeout"`
	// TransactionalIDs is how many of its two transactional ids a partition uses: with 2, a batch does not wait until
	// the previous one is complete on the broker. 0 keeps what the state table says, 2 in new ones. Builds that know
	// only one refuse a state table that uses 2: see the upgrade in deploy.md.
	TransactionalIDs int `mapstructure:"transactional_ids"`
	// SessionTimeout is how long the group waits for a silent process before it assigns its partitions to others.
	SessionTimeout time.Duration `mapstructure:"session_timeout"`
	ParkInterval   time.Duration `mapstructure:"park_interval"` // between retries of a parked partition
	// PositionCheckInterval is how often an idle partition checks its position in MySQL: a failover may move it back.
	PositionCheckInterval time.Duration `mapstructure:"position_check_interval"`
	ShutdownTimeout       time.Duration `mapstructure:"shutdown_timeout"` // for the batch in flight after SIGTERM
}

// DefaultOptions suit a production processor.
func DefaultOptions() Options {
	return Options{
		StateDir: "kudos-state",
		MaxBatch: 100_000, CollectFor: 8 * time.Millisecond, CacheBytes: 128 << 20, BufferBytes: 256 << 20,
		TransactionTimeout: 30 * time.Second, SessionTimeout: 10 * time.Second,
		ParkInterval: 5 * time.Second, PositionCheckInterval: 5 * time.Second, ShutdownTimeout: 20 * time.Second,
	}
}

// Validate returns all that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	for _, c := range []struct {
		wrong bool
		what  string
	}{
		{o.StateDir == "", "state_dir: a directory is needed"},
		{o.MaxBatch < 1 || o.MaxBatch > 1_000_000, "max_batch: must be between 1 and 1000000"},
		{o.CollectFor < 0 || o.CollectFor > time.Second, "collect_for: must be between 0 and 1s"},
		{o.CacheBytes < 1<<20, "cache_bytes: must be at least 1 MiB"},
		{o.BufferBytes < 1<<20, "buffer_bytes: must be at least 1 MiB"},
		{o.TransactionTimeout <= 0, "transaction_timeout: must be above zero"},
		{o.TransactionalIDs < 0 || o.TransactionalIDs > 2, "transactional_ids: must be 1, 2, or 0 to keep it"},
		{o.SessionTimeout <= 0, "session_timeout: must be above zero"},
		{o.ParkInterval <= 0, "park_interval: must be above zero"},
		{o.PositionCheckInterval <= 0, "position_check_interval: must be above zero"},
		{o.ShutdownTimeout <= 0, "shutdown_timeout: must be above zero"},
	} {
		if c.wrong {
			errs = append(errs, errors.New("processor."+c.what))
		}
	}
	return errors.Join(errs...)
}
