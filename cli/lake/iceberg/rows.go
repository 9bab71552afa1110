package iceberg

import (
	"encoding/binary"
	"io"

	"github.com/apache/iceberg-go"
	"github.com/parquet-go/parquet-go"

	"kudos/archive"
)

var fields = iceberg.NewSchema(0,
	field(1, "partition", iceberg.PrimitiveTypes.Int32, "of like-updates"),
	field(2, "seq", iceberg.PrimitiveTypes.Int64, "numbers the updates of a partition"),
	field(3, "index", iceberg.PrimitiveTypes.Int32, "numbers the rows of an update"),
	field(4, "offset", iceberg.PrimitiveTypes.Int64, "of the update in like-updates"),
	field(written, "written", iceberg.PrimitiveTypes.TimestampTz, "when Kafka received the update"),
	field(6, "post_id", iceberg.DecimalTypeOf(20, 0), ""),
	field(7, "region", iceberg.PrimitiveTypes.String, "ISO 3166, ZZ if unknown"),
	field(8, "minute", iceberg.PrimitiveTypes.TimestampTz, "event time"),
	field(9, "likes", iceberg.PrimitiveTypes.Int64, "net change"),
	field(10, "dislikes", iceberg.PrimitiveTypes.Int64, "net change"),
	field(11, "post_likes", iceberg.PrimitiveTypes.Int64, "of the post, after the update"),
	field(12, "post_dislikes", iceberg.PrimitiveTypes.Int64, "of the post, after the update"))

const written = 5

func field(id int, name string, of iceberg.Type, doc string) iceberg.NestedField {
	return iceberg.NestedField{ID: id, Name: name, Type: of, Required: true, Doc: doc}
}

// row is an archive.Row in the types of Iceberg, which has no unsigned integers and no milliseconds, with field ids.
type row struct {
	Partition    int32   `parquet:"partition,id(1)"`
	Seq          int64   `parquet:"seq,delta,id(2)"`
	Index        int32   `parquet:"index,id(3)"`
	Offset       int64   `parquet:"offset,delta,id(4)"`
	Written      int64   `parquet:"written,timestamp(microsecond),id(5)"`
	PostID       [9]byte `parquet:"post_id,decimal(0:20),id(6)"` // big-endian
	Region       string  `parquet:"region,dict,id(7)"`
	Minute       int64   `parquet:"minute,timestamp(microsecond),id(8)"`
	Likes        int64   `parquet:"likes,id(9)"`
	Dislikes     int64   `parquet:"dislikes,id(10)"`
	PostLikes    int64   `parquet:"post_likes,id(11)"`
	PostDislikes int64   `parquet:"post_dislikes,id(12)"`
}

// NewWriter implements archive.Table.
func (t *Table) NewWriter(file io.Writer, settings ...parquet.WriterOption) archive.RowWriter {
	return &rowWriter{GenericWriter: parquet.NewGenericWriter[row](file, settings...)}
}

// rowWriter is an archive.RowWriter.
type rowWriter struct {
	*parquet.GenericWriter[row]
	rows []row
}

func (w *rowWriter) Write(rows []archive.Row) (int, error) {
	w.rows = w.rows[:0]
	for _, r := range rows {
		row := row{Partition: r.Partition, Seq: int64(r.Seq), Index: r.Index, Offset: r.Offset,
			Written: r.Written.UnixMicro(), Region: r.Region, Minute: r.Minute.UnixMicro(), Likes: r.Likes,
			Dislikes: r.Dislikes, PostLikes: r.PostLikes, PostDislikes: r.PostDislikes}
		binary.BigEndian.PutUint64(row.PostID[1:], r.PostID)
		w.rows = append(w.rows, row)
	}
	return w.GenericWriter.Write(w.rows)
}
