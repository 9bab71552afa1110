package archive

import (
	"context"
	"io"

	"github.com/parquet-go/parquet-go"
)

// Table makes the archive's files those of a table in a catalog (cli/lake/iceberg).
type Table interface {
	// NewWriter writes rows in the table's types.
	NewWriter(file io.Writer, settings ...parquet.WriterOption) RowWriter
	// Add takes files that are in their place. It may have taken them before.
	Add(files []string)
	// Left returns which files may not be in the table yet.
	Left(files []string) []string
	// Run commits the files of a store to the table until ctx ends, and then once more. It waits for the catalog.
	Run(ctx context.Context, store Store)
	// Ready returns nil if the table can be committed to.
	Ready() error
}

// RowWriter writes a Parquet file.
type RowWriter interface {
	Write(rows []Row) (int, error)
	Close() error
}

// noTable is the Table of an archive without one.
type noTable struct{}

func (noTable) NewWriter(file io.Writer, settings ...parquet.WriterOption) RowWriter {
	return parquet.NewGenericWriter[Row](file, settings...)
}

func (noTable) Add([]string)               {}
func (noTable) Left([]string) []string     { return nil }
func (noTable) Run(context.Context, Store) {}
func (noTable) Ready() error               { return nil }
