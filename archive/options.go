package archive

import (
	"errors"
	"fmt"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"kudos/schema"
)

// Options of the archive.
type Options struct {
	// Dir is the folder of the files. One process at a time writes there.
	Dir string `mapstructure:"dir"`
	// RotateInterval is how long a row waits at most until its file is finished.
	RotateInterval time.Duration `mapstructure:"rotate_interval"`
	// MaxRows of a file. The rows of an update stay together.
	MaxRows int `mapstructure:"max_rows"`
	// RowGroupRows are the rows of a row group, which is in memory until it is whole: of each
	// partition one.
	RowGroupRows int `mapstructure:"row_group_rows"`
	// Compression of the files: zstd, snappy or none.
	Compression string `mapstructure:"compression"`
	// ParkInterval is how often a partition that cannot be archived is looked at again.
	ParkInterval time.Duration `mapstructure:"park_interval"`
}

// DefaultOptions finish a file of each partition every five minutes, if something came.
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

const (
	maxRows         = 100_000_000
	maxRowGroupRows = 10_000_000
)

var codecs = map[string]compress.Codec{"zstd": &parquet.Zstd, "snappy": &parquet.Snappy, "none": &parquet.Uncompressed}

// Validate says what is wrong with the options, all of it.
func (o Options) Validate() error {
	var errs []error
	if o.Dir == "" {
		errs = append(errs, errors.New("archive.dir: a folder is needed"))
	}
	if o.RotateInterval <= 0 {
		errs = append(errs, errors.New("archive.rotate_interval: must be above zero"))
	}
	if o.MaxRows < schema.MaxDeltas || o.MaxRows > maxRows {
		errs = append(errs, fmt.Errorf("archive.max_rows: between %d and %d", schema.MaxDeltas, maxRows))
	}
	if o.RowGroupRows < 1 || o.RowGroupRows > maxRowGroupRows {
		errs = append(errs, fmt.Errorf("archive.row_group_rows: between 1 and %d", maxRowGroupRows))
	}
	if _, ok := codecs[o.Compression]; !ok {
		errs = append(errs, fmt.Errorf("archive.compression: %q is none of zstd, snappy, none", o.Compression))
	}
	if o.ParkInterval <= 0 {
		errs = append(errs, errors.New("archive.park_interval: must be above zero"))
	}
	return errors.Join(errs...)
}
