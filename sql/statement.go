package sql

import (
	"cmp"
	"context"
	"strconv"

	"github.com/jmoiron/sqlx"
)

// statementText is what stands around the rows of a statement, and between them (nothing: a comma). Of upserts it is
// INSERT … ON DUPLICATE KEY UPDATE with VALUES(), deprecated in MySQL, but the only form that MariaDB knows too.
type statementText struct{ prefix, suffix, between string }

// updated_at is left to its default on insert and to the server's clock on update: as a literal in every row it made
// the whole transaction about a tenth slower (MariaDB 10.11, 1,000 and 50,000 posts).
var (
	countUpsert = statementText{
		prefix: "INSERT INTO like_count (post_id, `count`, dislike_count) VALUES ",
		suffix: " ON DUPLICATE KEY UPDATE `count` = `count` + VALUES(`count`)," +
			" dislike_count = dislike_count + VALUES(dislike_count), updated_at = UTC_TIMESTAMP(3)",
	}
	hourUpsert = statementText{
		prefix: "INSERT INTO like_hourly (hour, region, partition_id, likes, dislikes) VALUES ",
		suffix: " ON DUPLICATE KEY UPDATE likes = likes + VALUES(likes), dislikes = dislikes + VALUES(dislikes)",
	}
)

// upsert sends rows in as many statements as limit bytes each need. Text goes as text, not by placeholders: rows are
// numbers, and names that were checked, so there is nothing to escape.
func upsert[R any](ctx context.Context, tx *sqlx.Tx, limit int, around statementText, rows []R, appendRow func([]byte, R) []byte) error {
	return eachStatement(limit, around, rows, appendRow, execute(ctx, tx))
}

func execute(ctx context.Context, tx *sqlx.Tx) func(text string) error {
	return func(text string) error {
		_, err := tx.ExecContext(ctx, text)
		return err
	}
}

// eachStatement calls send with as many statements as limit bytes each need for the rows.
func eachStatement[R any](limit int, around statementText, rows []R, appendRow func([]byte, R) []byte, send func(text string) error) error {
	var text []byte
	for len(rows) > 0 {
		var used int
		text, used = appendStatement(text[:0], limit, around, rows, appendRow)
		rows = rows[used:]
		if len(text) == 0 {
			return nil
		}
		if err := send(string(text)); err != nil {
			return err
		}
	}
	return nil
}

// appendStatement writes one statement of as many rows as fit into limit bytes (at least one), and tells how many rows
// it used up. appendRow writes nothing for a row to skip; if that is all of them, text stays empty.
func appendStatement[R any](text []byte, limit int, around statementText, rows []R, appendRow func([]byte, R) []byte) (_ []byte, used int) {
	text = append(text, around.prefix...)
	between := cmp.Or(around.between, ",")
	first := true
	for _, row := range rows {
		end := len(text)
		if !first {
			text = append(text, between...)
		}
		begin := len(text)
		text = appendRow(text, row)
		if len(text) == begin {
			text = text[:end]
		} else if !first && len(text)+len(around.suffix) > limit {
			text = text[:end]
			break
		} else {
			first = false
		}
		used++
	}
	if first {
		return text[:0], used
	}
	return append(text, around.suffix...), used
}

func appendCount(text []byte, d CountDelta) []byte {
	if d.Likes == 0 && d.Dislikes == 0 {
		return text
	}
	text = append(text, '(')
	text = strconv.AppendUint(text, d.PostID, 10)
	return appendDeltas(text, d.Likes, d.Dislikes)
}

func appendHour(partition int32) func([]byte, HourDelta) []byte {
	return func(text []byte, d HourDelta) []byte {
		if d.Likes == 0 && d.Dislikes == 0 {
			return text
		}
		text = appendHourText(append(text, '('), d.Hour)
		text = append(text, ",'"...)
		text = append(text, d.Region...)
		text = append(text, "',"...)
		text = strconv.AppendInt(text, int64(partition), 10)
		return appendDeltas(text, d.Likes, d.Dislikes)
	}
}

func appendDeltas(text []byte, likes, dislikes int64) []byte {
	text = append(text, ',')
	text = strconv.AppendInt(text, likes, 10)
	text = append(text, ',')
	text = strconv.AppendInt(text, dislikes, 10)
	return append(text, ')')
}
