package ranker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"kudos/ranker/window"
	"kudos/schema"
)

// Kinds of rows in trending-local-table, and the rest of the key:
const (
	rowClock   = "c" // (none): the clock
	rowWindow  = "w" // region, post: the likes in buckets (window.Partition)
	rowShared  = "s" // post: it is also in other partitions
	rowTotal   = "a" // region, post: the likes of all time
	rowLeaders = "b" // region: the posts with the most likes of all time
	rowList    = "l" // key of the list: its last version
)

// Kinds of rows in trending-table, and the rest of the key:
const (
	rowSource  = "s" // partition: what it has reported
	rowMark    = "m" // partition, watermark: the offset at which the partition reached it
	rowVersion = "v" // versionKey: a list of a partition
	rowEnd     = "e" // window: the window end of the last rankings
	rowRanking = "r" // <region>/<window>: the last ranking, as published
)

const regionSize = len(schema.Region{})

func appendRowKey(b []byte, kind string, key window.RowKey) []byte {
	b = append(append(b, kind...), key.Region[:]...)
	return binary.BigEndian.AppendUint64(b, key.Post)
}

func sharedKey(post uint64) []byte { return binary.BigEndian.AppendUint64([]byte(rowShared), post) }

// clockRow is a partition's clock, and the settings in use.
type clockRow struct {
	clock, idle, gap schema.Minute
	settings         uint64 // window.Config.Settings
	kept             []window.Kept
}

func (r *clockRow) fields(c *codec) {
	signed(c, &r.clock, &r.idle, &r.gap)
	unsigned(c, &r.settings)
	list(c, &r.kept, 2, func(k *window.Kept) {
		signed(c, &k.Bucket)
		signed(c, &k.Since)
	})
}

// leadersRow has the ids of the leaders of a region, and the floor if any. Their likes are in the rowTotal rows.
type leadersRow struct {
	ids   []uint64
	floor []window.Post
}

func (r *leadersRow) fields(c *codec) {
	list(c, &r.ids, 1, func(id *uint64) { unsigned(c, id) })
	c.posts(&r.floor)
}

// versionKey sorts lists of a ranking and partition by window end, then offset. Exclusions may differ at an offset.
type versionKey struct {
	key        window.Key
	partition  int32
	end        schema.Minute
	offset     int64
	exclusions int64
}

// versionPrefix is the kind, the key of the ranking, a zero byte and the partition.
func versionPrefix(key window.Key, partition int32) []byte {
	b := append([]byte(rowVersion), rankingKey(key)...)
	return binary.BigEndian.AppendUint32(append(b, 0), uint32(partition))
}

func (k versionKey) row() []byte {
	b := appendOrdered(versionPrefix(k.key, k.partition), k.end)
	b = binary.BigEndian.AppendUint64(b, uint64(k.offset))
	return binary.BigEndian.AppendUint64(b, uint64(k.exclusions))
}

// parseVersionKey parses a key without the kind.
func parseVersionKey(b []byte) (k versionKey, err error) {
	name, tail, ok := bytes.Cut(b, []byte{0})
	region, win, both := strings.Cut(string(name), "/")
	if !ok || !both || len(tail) != 4+8+8+8 {
		return k, fmt.Errorf("row key %q is not that of a list", b)
	}
	k.partition = int32(binary.BigEndian.Uint32(tail))
	k.end = parseOrdered(tail[4:])
	k.offset = int64(binary.BigEndian.Uint64(tail[12:]))
	k.exclusions = int64(binary.BigEndian.Uint64(tail[20:]))
	k.key, err = parseKey(region, win)
	return k, err
}

// appendOrdered appends a time so that byte order is time order.
func appendOrdered(b []byte, m schema.Minute) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(m)^1<<63)
}

func parseOrdered(b []byte) schema.Minute { return schema.Minute(binary.BigEndian.Uint64(b) ^ 1<<63) }

func partitionKey(kind string, p int32) []byte {
	return binary.BigEndian.AppendUint32([]byte(kind), uint32(p))
}

func markKey(p int32, watermark schema.Minute) []byte {
	return appendOrdered(partitionKey(rowMark, p), watermark)
}
