package archive

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/stream"
)

// catalogue is a Table that has the first files that it was given.
type catalogue struct {
	noTable
	added []string
	has   int
}

func (c *catalogue) Add(names []string) {
	for _, name := range names {
		if !slices.Contains(c.added, name) {
			c.added = append(c.added, name)
		}
	}
}

func (c *catalogue) Left(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.Contains(c.added[:c.has], name)
	})
}

// TestPositionNamesFilesUntilTheTableHasThem crashes before each of the steps that put a file in its place.
func TestPositionNamesFilesUntilTheTableHasThem(t *testing.T) {
	w := newWriter(t, position{NextSeq: 1})
	d, table := w.contents, &catalogue{}
	reopen := func() {
		d.table = &catalogue{has: table.has}
		table = d.table.(*catalogue)
		w = testWriter(t, d, w.opts)
	}
	d.table = table
	write := func(offset int64) string {
		w.mustTake(t, update(offset, uint64(offset)+1, noon.Add(time.Duration(offset)*time.Hour), 1))
		require.NoError(t, w.commit())
		return w.archived.File
	}
	a, b := write(0), write(1)
	require.Equal(t, []string{a, b}, table.added)
	reopen()
	require.Equal(t, []string{a, b}, table.added)
	table.has = 1
	c := write(2)
	var at position
	require.NoError(t, json.Unmarshal([]byte(mustRead(t, d, "_p3.json")), &at))
	require.Equal(t, []string{b, c}, at.NotInTable)
	table.has = 0
	reopen()
	require.Equal(t, []string{b, c}, table.added)

	// The file is in its place after a crash before that.
	disk := diskOf(d)
	rename := disk.rename
	disk.rename = func(from, to string) error {
		if strings.HasSuffix(to, ".parquet") {
			return os.ErrPermission
		}
		return rename(from, to)
	}
	w.mustTake(t, update(3, 4, noon, 1))
	require.ErrorIs(t, w.commit(), os.ErrPermission)
	require.NoError(t, w.discard())
	require.Equal(t, []string{b, c}, table.added, "it is not in its place")
	disk.rename = rename
	reopen()
	require.Len(t, table.added, 3)
	require.Contains(t, files(t, w.opts), table.added[2])
}

func mustRead(t *testing.T, f *contents, name string) string {
	text, found, err := f.Read(name)
	require.NoError(t, err)
	require.True(t, found)
	return string(text)
}

// TestColumnsOfAnArchiveStay: files of both kinds would not make a table.
func TestColumnsOfAnArchiveStay(t *testing.T) {
	f := testDirectory(t, testOptions(t))
	id := identity{ClusterID: "cluster", TopicID: "topic", Partitions: 4}
	require.NoError(t, f.belongTo(id))
	f.columns = "iceberg"
	says(t, f.belongTo(id), stream.CauseState, "was begun with archive.iceberg.catalog, or without")
	f.columns = ""
	require.NoError(t, f.belongTo(id))

	f = testDirectory(t, testOptions(t))
	f.columns = "iceberg"
	require.NoError(t, f.belongTo(id))
	id.Partitions = 5
	require.NoError(t, f.belongTo(id), "partitions were added")
	require.NoError(t, f.belongTo(id))
	f.columns = ""
	says(t, f.belongTo(id), stream.CauseState, "was begun with archive.iceberg.catalog, or without")
}
