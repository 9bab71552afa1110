// Package s3 keeps an archive in a bucket of an object store that has the S3 protocol, with conditional writes.
//
// Such a store has no lock. A process that reads one of the archive's own files makes itself its owner: it writes it
// again, with its name and a random number, if it is still what was read. From then on the store refuses writes of
// processes that have not read that, and the process's own earlier requests that are still in flight. The other process
// does not take the file back: its partition parks.
package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"kudos/archive"
	"kudos/stream"
)

const (
	timeout       = 30 * time.Second // of a request, with its retries
	uploadTimeout = 2 * time.Minute  // of a file with rows
	maxOwnBytes   = 64 << 20         // of a file of the archive's own
)

type bucket struct {
	client         *minio.Client
	bucket, prefix string
	owner          string // a name of this process

	mu    sync.Mutex
	tags  map[string]string // by name: the ETag of one of the archive's own files, as last read or written here
	taken map[string]bool   // by name: this process has been the owner
}

// Open connects to archive.dir=s3://BUCKET/PREFIX at archive.s3_endpoint. Keys are AWS's: AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY, the file ~/.aws/credentials, or the role of the machine.
func Open(o archive.Options) (archive.Store, error) {
	b, err := connect(o)
	if err != nil {
		return nil, err
	}
	return b, b.requireConditions()
}

// Connect returns the client of an archive's object store. It does no I/O.
func Connect(o archive.Options) (*minio.Client, error) {
	b, err := connect(o)
	if err != nil {
		return nil, err
	}
	return b.client, nil
}

func connect(o archive.Options) (*bucket, error) {
	at, err := url.Parse(o.Dir)
	if err != nil || at.Host == "" || at.RawQuery != "" || at.Fragment != "" {
		return nil, fmt.Errorf("archive.dir: %s is not s3://BUCKET/PREFIX", o.Dir)
	}
	endpoint, err := url.Parse(o.S3Endpoint)
	if err != nil {
		return nil, fmt.Errorf("archive.s3_endpoint: %w", err)
	}
	if strings.Trim(endpoint.Path, "/") != "" {
		return nil, fmt.Errorf("archive.s3_endpoint: %s has a path; only scheme, host and port are used", o.S3Endpoint)
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Secure: endpoint.Scheme == "https", Region: os.Getenv("AWS_REGION"),
		Creds: credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{},
			&credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Timeout: timeout}}}),
	})
	if err != nil {
		return nil, fmt.Errorf("archive.s3_endpoint: %w", err)
	}
	return &bucket{client: client, bucket: at.Host, prefix: strings.Trim(at.Path, "/"), owner: rand.Text(),
		tags: map[string]string{}, taken: map[string]bool{}}, nil
}

// requireConditions fails if the store does not answer, or ignores conditions.
func (b *bucket) requireConditions() error {
	name := "_probe-" + b.owner
	if err := b.put(name, "", nil); err != nil {
		return err
	}
	second, other := b.put(name, "", []byte("again")), b.put(name, "another", []byte("again"))
	if err := b.Remove(name); err != nil {
		return err
	}
	for condition, err := range map[string]error{"If-None-Match": second, "If-Match": other} {
		if err == nil {
			return fmt.Errorf("archive.dir: the object store of %s ignores %s: two processes could write there",
				b, condition)
		}
		if !errors.As(err, new(*stream.ParkError)) {
			return err
		}
	}
	return nil
}

func (b *bucket) String() string { return "s3://" + path.Join(b.bucket, b.prefix) }
func (b *bucket) Close() error   { return nil }

func (b *bucket) key(name string) string { return path.Join(b.prefix, name) }

func (b *bucket) failed(what, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("archive.dir: %s %s/%s: %w", what, b, name, err)
}

func within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func has(err error, codes ...string) bool {
	for _, code := range codes {
		if err != nil && minio.ToErrorResponse(err).Code == code {
			return true
		}
	}
	return false
}

// Read implements archive.Store. It makes this process the owner.
func (b *bucket) Read(name string) (text []byte, found bool, err error) {
	text, tag, err := b.get(name)
	if err != nil && !has(err, minio.NoSuchKey) {
		return nil, false, b.failed("reading", name, err)
	}
	content, owner := map[string]json.RawMessage{}, ""
	if tag != "" && json.Unmarshal(text, &content) != nil {
		return text, true, nil // it is damaged
	}
	_ = json.Unmarshal(content["owner"], &owner)
	delete(content, "owner")
	delete(content, "random")
	text, _ = json.Marshal(content) // cannot fail
	if b.remember(name, tag, owner == b.owner) && owner != b.owner {
		return nil, false, b.another(name)
	}
	if err := b.Write(name, text); err != nil {
		return nil, false, err
	}
	return text, len(content) > 0, nil
}

func (b *bucket) get(name string) (text []byte, tag string, err error) {
	ctx, cancel := within(timeout)
	defer cancel()
	object, err := b.client.GetObject(ctx, b.bucket, b.key(name), minio.GetObjectOptions{})
	if err != nil {
		return nil, "", err
	}
	defer object.Close()
	if text, err = io.ReadAll(io.LimitReader(object, maxOwnBytes+1)); err != nil {
		return nil, "", err
	}
	if len(text) > maxOwnBytes {
		return nil, "", fmt.Errorf("it has more than %d bytes", maxOwnBytes)
	}
	info, err := object.Stat()
	return text, info.ETag, err
}

// remember returns whether this process has been the owner.
func (b *bucket) remember(name, tag string, owner bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if owner || !b.taken[name] {
		b.tags[name] = tag // otherwise the next Write must fail
	}
	b.taken[name] = b.taken[name] || owner
	return b.taken[name]
}

func (b *bucket) another(name string) error {
	return stream.Park(stream.CauseState, "stop one of the two, and restart the other",
		"another process writes to %s: %s has changed", b, name)
}

// Write implements archive.Store.
func (b *bucket) Write(name string, text []byte) error {
	content := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &content); err != nil {
		return b.failed("writing", name, err)
	}
	content["owner"], _ = json.Marshal(b.owner) // cannot fail, nor the next two
	content["random"], _ = json.Marshal(rand.Text())
	text, _ = json.Marshal(content)
	b.mu.Lock()
	tag := b.tags[name]
	b.mu.Unlock()
	return b.put(name, tag, text)
}

// put writes a file if its ETag is that given, or if there is none and none is given.
func (b *bucket) put(name, tag string, text []byte) error {
	ctx, cancel := within(timeout)
	defer cancel()
	o := minio.PutObjectOptions{ContentType: "application/json", DisableMultipart: true}
	if tag == "" {
		o.SetMatchETagExcept("*")
	} else {
		o.SetMatchETag(tag)
	}
	info, err := b.client.PutObject(ctx, b.bucket, b.key(name), bytes.NewReader(text), int64(len(text)), o)
	switch {
	case err == nil:
		b.remember(name, info.ETag, true)
		return nil
	case !has(err, minio.PreconditionFailed, minio.NoSuchKey): // the latter: it was to match, and is gone
		return b.failed("writing", name, err)
	}
	// The client repeats requests. If an answer was lost, its own request is what the repeated one met.
	if there, tag, err := b.get(name); err == nil && bytes.Equal(there, text) {
		b.remember(name, tag, true)
		return nil
	} else if err != nil && !has(err, minio.NoSuchKey) {
		return b.failed("reading", name, err)
	}
	return b.another(name)
}

// file is a file with rows; it is uploaded when it is finished.
type file struct {
	*os.File
	bucket *bucket
	name   string
}

// Create implements archive.Store. The temporary name is used once: a position that names it means this file.
func (b *bucket) Create(name string) (f archive.File, temporary string, err error) {
	local, err := os.CreateTemp("", "kudos-archive-")
	if err != nil {
		return nil, "", fmt.Errorf("archive.dir: a temporary file: %w", err)
	}
	_ = os.Remove(local.Name()) // so that a kill leaves nothing; where an open file cannot be removed, Close does
	temporary = name + "." + rand.Text()
	return file{local, b, temporary}, temporary, nil
}

func (f file) Close() error {
	err := f.File.Close()
	_ = os.Remove(f.File.Name())
	return err
}

// Finish implements archive.File.
func (f file) Finish() (size int64, err error) {
	if size, err = f.Seek(0, io.SeekEnd); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		ctx, cancel := within(uploadTimeout)
		defer cancel()
		_, err = f.bucket.client.PutObject(ctx, f.bucket.bucket, f.bucket.key(f.name), f.File, size,
			minio.PutObjectOptions{ContentType: "application/vnd.apache.parquet"})
	}
	if err != nil {
		return 0, err // the caller closes it
	}
	return size, f.Close()
}

// Publish implements archive.Store.
func (b *bucket) Publish(from, to string) error {
	ctx, cancel := within(uploadTimeout)
	defer cancel()
	_, err := b.client.CopyObject(ctx, minio.CopyDestOptions{Bucket: b.bucket, Object: b.key(to)},
		minio.CopySrcOptions{Bucket: b.bucket, Object: b.key(from)})
	if has(err, minio.NoSuchKey) {
		return nil // it was done before
	}
	if err != nil {
		return b.failed("publishing", to, err)
	}
	return b.Remove(from)
}

// List implements archive.Store.
func (b *bucket) List(directory, prefix string) (names []string, err error) {
	ctx, cancel := within(timeout)
	defer cancel()
	under := b.key(directory) + "/"
	if under == "./" {
		under = ""
	}
	for o := range b.client.ListObjectsIter(ctx, b.bucket, minio.ListObjectsOptions{Prefix: under + prefix}) {
		if o.Err != nil {
			return nil, b.failed("listing", directory, o.Err)
		}
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(o.Key, under), "/"))
	}
	return names, nil
}

// Remove implements archive.Store. It is no error if there is none.
func (b *bucket) Remove(name string) error {
	ctx, cancel := within(timeout)
	defer cancel()
	return b.failed("removing", name, b.client.RemoveObject(ctx, b.bucket, b.key(name), minio.RemoveObjectOptions{}))
}
