package archive

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// Row is one row of the files: what one update changed in its post, in one region and minute.
type Row struct {
	// Partition, Seq and Index identify the row permanently. Index numbers the rows of one update.
	Partition int32  `parquet:"partition"`
	Seq       uint64 `parquet:"seq,delta"`
	Index     int32  `parquet:"index"`
	// Offset is that of the update in like-updates, and Written the record's timestamp.
	Offset  int64     `parquet:"offset,delta"`
	Written time.Time `parquet:"written,timestamp(millisecond)"`

	PostID uint64 `parquet:"post_id"`
	// Region is an ISO 3166 code, or ZZ if unknown. Minute is event time.
	Region string    `parquet:"region,dict"`
	Minute time.Time `parquet:"minute,timestamp(millisecond)"`
	// Likes and Dislikes are the net change; PostLikes and PostDislikes the post's counts after the update.
	Likes        int64 `parquet:"likes"`
	Dislikes     int64 `parquet:"dislikes"`
	PostLikes    int64 `parquet:"post_likes"`
	PostDislikes int64 `parquet:"post_dislikes"`
}

func appendRows(rows []Row, rec *kgo.Record, post uint64, u *schema.Update) []Row {
	for i, d := range u.Deltas {
		rows = append(rows, Row{Partition: rec.Partition, Seq: u.Seq, Index: int32(i), Offset: rec.Offset, PostID: post,
			Written: rec.Timestamp.UTC(), Region: d.Region.String(), Minute: time.Unix(60*d.Minute, 0).UTC(),
			Likes: d.Likes, Dislikes: d.Dislikes, PostLikes: u.Counts.Likes, PostDislikes: u.Counts.Dislikes})
	}
	return rows
}
