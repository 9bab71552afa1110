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
	Dir            string        `mapstructure:"dir"`             // only one process at a time can write to it
	RotateInterval time.Duration `mapstructure:"rotate_interval"` // longest wait of a row until its file is finished
	MaxRows        int           `mapstructure:"max_rows"`        // of a file; the rows of one update stay together
	RowGroupRows   int           `mapstructure:"row_group_rows"`  // each partition keeps one row group in memory
	Compression    string        `mapstructure:"compression"`     // zstd, snappy or none
	ParkInterval   time.Duration `mapstructure:"park_interval"`   // between retries of a parked partition
}

// DefaultOptions finish a file per partition every five minutes, if updates arrived.
func DefaultOptions() Options {
	return Options{Dir: "kudos-archive", RotateInterval: 5 * time.Minute, MaxRows: 5_000_000, RowGroupRows: 200_000,
		Compression: "zstd", ParkInterval: 5 * time.Second}
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
	refuse(o.Dir == "", "dir: must name a directory")
	refuse(o.RotateInterval <= 0, "rotate_interval: must be above zero")
	refuse(o.MaxRows < schema.MaxDeltas || o.MaxRows > 100_000_000,
		"max_rows: must be between %d and %d", schema.MaxDeltas, 100_000_000)
	refuse(o.RowGroupRows < 1 || o.RowGroupRows > 10_000_000, "row_group_rows: must be between 1 and 10000000")
	refuse(codecs[o.Compression] == nil, "compression: %q is not one of zstd, snappy, none", o.Compression)
	refuse(o.ParkInterval <= 0, "park_interval: must be above zero")
	return errors.Join(errs...)
}
