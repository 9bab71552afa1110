package archive

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"kudos/schema"
)

// Options configure the archive.
type Options struct {
	Dir            string        `mapstructure:"dir"`             // or s3://BUCKET/PREFIX; one process writes to it
	S3Endpoint     string        `mapstructure:"s3_endpoint"`     // the object store's URL
	RotateInterval time.Duration `mapstructure:"rotate_interval"` // longest wait of a row until its file is finished
	MaxRows        int           `mapstructure:"max_rows"`        // of a file; the rows of one update stay together
	RowGroupRows   int           `mapstructure:"row_group_rows"`  // each partition keeps one row group in memory
	Compression    string        `mapstructure:"compression"`     // zstd, snappy or none
	ParkInterval   time.Duration `mapstructure:"park_interval"`   // between retries of a parked partition

	Iceberg IcebergOptions `mapstructure:"iceberg"`

	// OpenBucket opens Dir in an object store (cli/full), OpenTable the table (cli/lake). nil: this build cannot.
	OpenBucket func(Options) (Store, error)               `mapstructure:"-"`
	OpenTable  func(Options, *slog.Logger) (Table, error) `mapstructure:"-"`
}

// IcebergOptions name a table of the archive's files, if Catalog is set.
type IcebergOptions struct {
	Catalog string `mapstructure:"catalog"` // mysql: the database of mysql.dsn
	Name    string `mapstructure:"name"`    // of the catalog, as Iceberg's clients of SQL catalogs call it
	Table   string `mapstructure:"table"`   // NAMESPACE.TABLE
}

func (o Options) columns() string {
	if o.Iceberg.Catalog != "" {
		return "iceberg"
	}
	return ""
}

// DefaultOptions finish a file per partition every five minutes, if updates arrived.
func DefaultOptions() Options {
	return Options{Dir: "kudos-archive", RotateInterval: 5 * time.Minute, MaxRows: 5_000_000, RowGroupRows: 200_000,
		Compression: "zstd", ParkInterval: 5 * time.Second, S3Endpoint: "https://s3.amazonaws.com",
		Iceberg: IcebergOptions{Name: "kudos", Table: "kudos.changes"}}
}

func (o Options) open() (Store, error) {
	switch {
	case !strings.HasPrefix(o.Dir, "s3://"):
		return openDirectory(o.Dir)
	case o.OpenBucket == nil:
		return nil, errors.New("archive.dir: this build has no client of object stores; " +
			"use a released program or image, or make build")
	}
	return o.OpenBucket(o)
}

func (o Options) openTable(log *slog.Logger) (Table, error) {
	switch {
	case o.Iceberg.Catalog == "":
		return noTable{}, nil
	case o.OpenTable == nil:
		return nil, errors.New("archive.iceberg.catalog: this build has no client of Iceberg; " +
			"use kudos-iceberg of a release, or make iceberg")
	}
	return o.OpenTable(o, log)
}

var tableName = regexp.MustCompile(`^[A-Za-z0-9_]+\.[A-Za-z0-9_]+$`)

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
	endpoint, err := url.Parse(o.S3Endpoint)
	refuse(err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https",
		"s3_endpoint: must be an http or https URL")
	refuse(o.RotateInterval <= 0, "rotate_interval: must be above zero")
	refuse(o.MaxRows < schema.MaxDeltas || o.MaxRows > 100_000_000,
		"max_rows: must be between %d and %d", schema.MaxDeltas, 100_000_000)
	refuse(o.RowGroupRows < 1 || o.RowGroupRows > 10_000_000, "row_group_rows: must be between 1 and 10000000")
	refuse(codecs[o.Compression] == nil, "compression: %q is not one of zstd, snappy, none", o.Compression)
	refuse(o.ParkInterval <= 0, "park_interval: must be above zero")
	refuse(o.Iceberg.Catalog != "" && o.Iceberg.Catalog != "mysql", "iceberg.catalog: must be mysql, or empty for none")
	refuse(!tableName.MatchString(o.Iceberg.Table), "iceberg.table: must be NAMESPACE.TABLE")
	refuse(o.Iceberg.Name == "", "iceberg.name: must not be empty")
	return errors.Join(errs...)
}
