package iceberg

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"net/url"
	"path"
	"strings"
	"time"

	icebergio "github.com/apache/iceberg-go/io"
	"github.com/minio/minio-go/v7"
)

const requestTimeout = 2 * time.Minute

// objects are the files of an object store, which Iceberg names by URL. So one client, with one account, has all files.
type objects struct {
	ctx context.Context // of the commit that they are for
	*minio.Client
}

// at returns a file's bucket and key.
func at(name string) (bucket, key string, err error) {
	u, err := url.Parse(name)
	if err != nil {
		return "", "", err
	}
	return u.Host, strings.TrimPrefix(u.Path, "/"), nil
}

func failedFor(operation, name string, err error) error {
	if err != nil && minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		err = fs.ErrNotExist
	}
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: operation, Path: name, Err: err}
}

// opened is an object that is read, part by part.
type opened struct {
	*minio.Object
	info minio.ObjectInfo
	stop context.CancelFunc
}

// Open implements icebergio.IO.
func (f objects) Open(name string) (icebergio.File, error) {
	bucket, key, err := at(name)
	if err != nil {
		return nil, failedFor("open", name, err)
	}
	ctx, stop := context.WithTimeout(f.ctx, requestTimeout) // of all reads
	o, err := f.Client.GetObject(ctx, bucket, key, minio.GetObjectOptions{})
	if err != nil {
		stop()
		return nil, failedFor("open", name, err)
	}
	info, err := o.Stat()
	if err != nil {
		stop()
		return nil, failedFor("open", name, err)
	}
	return opened{o, info, stop}, nil
}

func (o opened) Close() error {
	defer o.stop()
	return o.Object.Close()
}

func (o opened) Stat() (fs.FileInfo, error) { return o, nil }
func (o opened) Name() string               { return path.Base(o.info.Key) }
func (o opened) Size() int64                { return o.info.Size }
func (o opened) Mode() fs.FileMode          { return 0o444 }
func (o opened) ModTime() time.Time         { return o.info.LastModified }
func (o opened) IsDir() bool                { return false }
func (o opened) Sys() any                   { return nil }

// Remove implements icebergio.IO.
func (f objects) Remove(name string) error {
	bucket, key, err := at(name)
	if err == nil {
		ctx, cancel := context.WithTimeout(f.ctx, requestTimeout)
		defer cancel()
		err = f.Client.RemoveObject(ctx, bucket, key, minio.RemoveObjectOptions{})
	}
	return failedFor("remove", name, err)
}

// WriteFile implements icebergio.WriteFileIO.
func (f objects) WriteFile(name string, content []byte) error {
	bucket, key, err := at(name)
	if err == nil {
		ctx, cancel := context.WithTimeout(f.ctx, requestTimeout)
		defer cancel()
		_, err = f.Client.PutObject(ctx, bucket, key, bytes.NewReader(content), int64(len(content)),
			minio.PutObjectOptions{})
	}
	return failedFor("write", name, err)
}

// created is written when it is closed.
type created struct {
	bytes.Buffer
	files objects
	name  string
}

// Create implements icebergio.WriteFileIO. What Iceberg writes, metadata, is small.
func (f objects) Create(name string) (icebergio.FileWriter, error) {
	return &created{files: f, name: name}, nil
}

func (c *created) Close() error { return c.files.WriteFile(c.name, c.Bytes()) }

var (
	_ icebergio.WriteFileIO = objects{}
	_ io.ReaderFrom         = &created{}
)
