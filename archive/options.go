package archive

import (
	"errors"
	"fmt"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"kudos/schema"
)

// Options configure the archive.
type Options struct {
	// Dir is the directory of the archive. Only one process at a time can write to it.
	Dir string `mapstructure:"dir"`
	// RotateInterval is the longest time that a row waits until its file is finished.
	RotateInterval time.Duration `mapstructure:"rotate_interval"`
	// MaxRows is the maximum size of a file. The rows of one update stay together.
	MaxRows int `mapstructure:"max_rows"`
	// RowGroupRows is the size of a row group. Each partition keeps one in memory until it is complete.
	RowGroupRows int `mapstructure:"row_group_rows"`
	// Compression is zstd, snappy or none.
	Compression string `mapstructure:"compression"`
	// ParkInterval is how often a parked partition is retried.
	ParkInterval time.Duration `mapstructure:"park_interval"`
}

// DefaultOptions finish a file per partition every five minutes, if updates arrived.
func DefaultOptions() Options {
	return Options{
		Dir:            "kudos-archive",
		RotateInterval: 5 * time.Minute,
		MaxRows:        5_000_000,
		RowGroupRows:   200_000,
		Compression:    "zstd",
		ParkInterval:   5 * time.Second,
	}
}

var codecs = map[string]compress.Codec{"zstd": &parquet.Zstd, "snappy": &parquet.Snappy, "none": &parquet.Uncompressed}

// Validate returns everything that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("archive."+format, args...))
		}
	}
	refuse(o.Dir == "", "dir: a folder is needed")
	refuse(o.RotateInterval <= 0, "rotate_interval: must be above zero")
	refuse(o.MaxRows < schema.MaxDeltas || o.MaxRows > 100_000_000,
		"max_rows: between %d and %d", schema.MaxDeltas, 100_000_000)
	refuse(o.RowGroupRows < 1 || o.RowGroupRows > 10_000_000, "row_group_rows: between 1 and 10000000")
	refuse(codecs[o.Compression] == nil, "compression: %q is none of zstd, snappy, none", o.Compression)
	refuse(o.ParkInterval <= 0, "park_interval: must be above zero")
	return errors.Join(errs...)
}
