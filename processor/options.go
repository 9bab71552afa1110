package processor

import (
	"errors"
	"time"
)

// Options of the processor role.
type Options struct {
	// StateDir holds the local copy of the state table, a folder per partition. It
	// is a cache: deleting it costs a recovery from Kafka and nothing else.
	StateDir string `mapstructure:"state_dir"`
	// MaxBatch is how many records of a partition one transaction takes at most.
	MaxBatch int `mapstructure:"max_batch"`
	// CacheBytes is the memory of the state table's block cache, for all partitions.
	CacheBytes int64 `mapstructure:"cache_bytes"`
	// BufferBytes is the memory for what was written to the state table last, for all
	// partitions. Of a process that is killed, a fourth of it at most is read again from
	// Kafka.
	BufferBytes int64 `mapstructure:"buffer_bytes"`
	// Standby has a process keep copies of the partitions of the state table that others
	// own, too: taking one over then reads only what was not followed yet.
	Standby bool `mapstructure:"standby"`
	// TransactionTimeout is how long Kafka keeps a transaction of a dead process
	// open, and with it readers of committed data back.
	TransactionTimeout time.Duration `mapstructure:"transaction_timeout"`
	// SessionTimeout is how long the group waits for a silent process before it
	// hands its partitions to others.
	SessionTimeout time.Duration `mapstructure:"session_timeout"`
	// ParkInterval is how often a parked partition is looked at again.
	ParkInterval time.Duration `mapstructure:"park_interval"`
	// PositionCheckInterval is how often an idle partition compares its position
	// with MySQL's: a failover may have moved it back.
	PositionCheckInterval time.Duration `mapstructure:"position_check_interval"`
	// ShutdownTimeout bounds the batch in hand after SIGTERM.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"`
}

// DefaultOptions suit a production processor.
func DefaultOptions() Options {
	return Options{
		StateDir:              "kudos-state",
		MaxBatch:              100_000,
		CacheBytes:            128 << 20,
		BufferBytes:           256 << 20,
		TransactionTimeout:    30 * time.Second,
		SessionTimeout:        10 * time.Second,
		ParkInterval:          5 * time.Second,
		PositionCheckInterval: 5 * time.Second,
		ShutdownTimeout:       20 * time.Second,
	}
}

// Validate says what is wrong with the options, all of it.
func (o Options) Validate() error {
	var errs []error
	if o.StateDir == "" {
		errs = append(errs, errors.New("processor.state_dir: a folder is needed"))
	}
	if o.MaxBatch < 1 || o.MaxBatch > 1_000_000 {
		errs = append(errs, errors.New("processor.max_batch: between 1 and 1000000"))
	}
	if o.CacheBytes < 1<<20 {
		errs = append(errs, errors.New("processor.cache_bytes: at least 1 MiB"))
	}
	if o.BufferBytes < 1<<20 {
		errs = append(errs, errors.New("processor.buffer_bytes: at least 1 MiB"))
	}
	for name, d := range map[string]time.Duration{
		"transaction_timeout":     o.TransactionTimeout,
		"session_timeout":         o.SessionTimeout,
		"park_interval":           o.ParkInterval,
		"position_check_interval": o.PositionCheckInterval,
		"shutdown_timeout":        o.ShutdownTimeout,
	} {
		if d <= 0 {
			errs = append(errs, errors.New("processor."+name+": must be above zero"))
		}
	}
	return errors.Join(errs...)
}
