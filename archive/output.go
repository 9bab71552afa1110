package archive

import (
	"errors"
	"fmt"
	"os"

	"github.com/parquet-go/parquet-go"
)

// output is a file in hand. What is not on disk of it is one row group at most.
type output struct {
	folder  *folder
	file    *os.File
	parquet *parquet.GenericWriter[Row]
	rows    int64
}

func createOutput(f *folder, name string, opts Options) (*output, error) {
	file, err := os.OpenFile(f.path(name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("archive.dir: %w", err)
	}
	return &output{folder: f, file: file, parquet: parquet.NewGenericWriter[Row](file,
		parquet.Compression(codecs[opts.Compression]),
		parquet.MaxRowsPerRowGroup(int64(opts.RowGroupRows)),
	)}, nil
}

func (o *output) write(rows []Row) error {
	n, err := o.parquet.Write(rows)
	if err != nil {
		return fmt.Errorf("archive.dir: writing %s: %w", o.file.Name(), err)
	}
	o.rows += int64(n)
	return nil
}

// finish has the file be whole and on disk, and returns its size.
func (o *output) finish() (bytes int64, err error) {
	if err = o.parquet.Close(); err == nil {
		err = o.folder.syncFile(o.file)
	}
	if err == nil {
		var info os.FileInfo
		if info, err = o.file.Stat(); err == nil {
			bytes = info.Size()
		}
	}
	if err = errors.Join(err, o.file.Close()); err != nil {
		return 0, fmt.Errorf("archive.dir: finishing %s: %w", o.file.Name(), err)
	}
	return bytes, nil
}

// discard lets go of the file, which may have been finished in vain: then the position on disk
// decides what becomes of it, and it stays until it is read.
func (o *output) discard() error {
	if err := o.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("archive.dir: closing %s: %w", o.file.Name(), err)
	}
	return nil
}
