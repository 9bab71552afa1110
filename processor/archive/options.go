package archive

import (
	"errors"
	"fmt"
	"time"
)

// Options of the archive.
type Options struct {
	// Dir is the folder of the files. One process at a time writes there.
	Dir string `mapstructure:"dir"`
	// FlushInterval is how long a row waits for its file at most.
	FlushInterval time.Duration `mapstructure:"flush_interval"`
	// MaxRows of a file. They are in memory until it is written, for each partition.
	MaxRows int `mapstructure:"max_rows"`
	// Compression of the files: zstd, snappy or none.
	Compression string `mapstructure:"compression"`
}

// DefaultOptions write a file for each partition every five minutes, at most.
func DefaultOptions() Options {
	return Options{Dir: "archive", FlushInterval: 5 * time.Minute, MaxRows: 200_000, Compression: "zstd"}
}

// Validate says what is wrong with the options, all of it.
func (o Options) Validate() error {
	var errs []error
	if o.Dir == "" {
		errs = append(errs, errors.New("archive.dir: a folder is needed"))
	}
	if o.FlushInterval <= 0 {
		errs = append(errs, errors.New("archive.flush_interval: must be above zero"))
	}
	if o.MaxRows < 1 {
		errs = append(errs, fmt.Errorf("archive.max_rows: %d is too few, at least 1", o.MaxRows))
	}
	if _, ok := codecs[o.Compression]; !ok {
		errs = append(errs, fmt.Errorf("archive.compression: %q is none of zstd, snappy, none", o.Compression))
	}
	return errors.Join(errs...)
}
