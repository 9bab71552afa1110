package iceberg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"

	icebergio "github.com/apache/iceberg-go/io"
	"github.com/minio/minio-go/v7"

	"kudos/archive"
	"kudos/cli/full/s3"
)

// registerFiles makes iceberg-go read and write where the archive is, and remove nothing while keep is set. It returns
// the archive's URL.
func registerFiles(o archive.Options, keep *atomic.Bool) (location string, err error) {
	var client *minio.Client
	scheme, at := "s3", strings.TrimPrefix(o.Dir, "s3://")
	if at != o.Dir {
		client, err = s3.Connect(o)
	} else {
		scheme = "file"
		at, err = filepath.Abs(o.Dir)
	}
	at = path.Clean(filepath.ToSlash(at))
	switch {
	case err != nil:
		return "", err
	case (&url.URL{Path: at}).EscapedPath() != at: // some clients would decode it, others not
		return "", fmt.Errorf("archive.dir: %s has characters that URLs don't have, which Iceberg needs", o.Dir)
	}
	icebergio.Unregister(scheme)
	icebergio.Register(scheme, func(ctx context.Context, _ *url.URL, _ map[string]string) (icebergio.IO, error) {
		if client != nil {
			return kept{objects{ctx, client}, keep}, nil
		}
		return kept{disk{}, keep}, nil
	})
	return scheme + "://" + at, nil
}

// kept are files of which none is removed while keep is set.
type kept struct {
	icebergio.WriteFileIO
	keep *atomic.Bool
}

// Remove implements icebergio.IO.
func (k kept) Remove(name string) error {
	if k.keep.Load() {
		return nil
	}
	return k.WriteFileIO.Remove(name)
}

// disk makes files durable before the catalog refers to them.
type disk struct{ icebergio.LocalFS }

type diskFile struct{ *os.File }

// Create implements icebergio.WriteFileIO.
func (d disk) Create(name string) (icebergio.FileWriter, error) {
	w, err := d.LocalFS.Create(name)
	if err != nil {
		return nil, err
	}
	return diskFile{w.(*os.File)}, nil
}

// WriteFile implements icebergio.WriteFileIO.
func (d disk) WriteFile(name string, content []byte) error {
	w, err := d.Create(name)
	if err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return errors.Join(err, w.Close())
	}
	return w.Close()
}

// Close also makes the file's name durable, and those of the directories up to the archive's.
func (f diskFile) Close() error {
	err := errors.Join(f.Sync(), f.File.Close())
	for at, inside := f.Name(), true; inside && err == nil; {
		inside = filepath.Base(at) != tableDirectory && at != filepath.Dir(at)
		at = filepath.Dir(at)
		dir, failed := os.Open(at)
		if failed != nil {
			return failed
		}
		err = errors.Join(dir.Sync(), dir.Close())
	}
	return err
}
