package ranker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"kudos/ranker/window"
	"kudos/schema"
)

// Kinds of rows in trending-local-table, and what follows in the key:
const (
	rowClock   = "c" // nothing: the clock
	rowWindow  = "w" // region, post: the likes in buckets (window.Partition)
	rowShared  = "s" // post: it is in other partitions too
	rowTotal   = "a" // region, post: the likes of all time
	rowLeaders = "b" // region: the posts with the most likes of all time
	rowList    = "l" // key of the list: its last version
)

// Kinds of rows in trending-table, and what follows in the key:
const (
	rowSource  = "s" // partition: where it stands
	rowMark    = "m" // partition, watermark: the position at which the partition reached it
	rowVersion = "v" // versionKey: a partition's list
	rowEnd     = "e" // window: the end of the last rankings
	rowRanking = "r" // <region>/<window>: the last ranking, as published
)

const regionSize = len(schema.Region{})

func appendRowKey(b []byte, kind string, key window.RowKey) []byte {
	b = append(append(b, kind...), key.Region[:]...)
	return binary.BigEndian.AppendUint64(b, key.Post)
}

func sharedKey(post uint64) []byte { return binary.BigEndian.AppendUint64([]byte(rowShared), post) }

// clockRow is where a partition's clock stands, and with which settings.
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

// leadersRow is the ids of a region's leaders, and the floor if there is one. Their likes are in the rows of the
// totals.
type leadersRow struct {
	ids   []uint64
	floor []window.Post
}

func (r *leadersRow) fields(c *codec) {
	list(c, &r.ids, 1, func(id *uint64) { unsigned(c, id) })
	c.posts(&r.floor)
}

// versionKey orders the lists of a ranking and partition by end, then position; an exclusion makes another list at the
// same position.
type versionKey struct {
	key        window.Key
	partition  int32
	end        schema.Minute
	offset     int64
	exclusions int64
}

// versionPrefix is the kind, the ranking's key, a zero byte and the partition.
func versionPrefix(key window.Key, partition int32) []byte {
	b := append([]byte(rowVersion), rankingKey(key)...)
	return binary.BigEndian.AppendUint32(append(b, 0), uint32(partition))
}

func (k versionKey) row() []byte {
	b := appendOrdered(versionPrefix(k.key, k.partition), k.end)
	b = binary.BigEndian.AppendUint64(b, uint64(k.offset))
	return binary.BigEndian.AppendUint64(b, uint64(k.exclusions))
}

// parseVersionKey reads what follows the kind.
func parseVersionKey(b []byte) (k versionKey, err error) {
	name, tail, ok := bytes.Cut(b, []byte{0})
	region, win, both := strings.Cut(string(name), "/")
	if !ok || !both || len(tail) != 4+8+8+8 {
		return k, fmt.Errorf("row key %q is none of a list", b)
	}
	k.partition = int32(binary.BigEndian.Uint32(tail))
	k.end = parseOrdered(tail[4:])
	k.offset = int64(binary.BigEndian.Uint64(tail[12:]))
	k.exclusions = int64(binary.BigEndian.Uint64(tail[20:]))
	k.key, err = parseKey(region, win)
	return k, err
}

// appendOrdered appends a time so that the bytes sort as the times do.
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
