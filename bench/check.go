package bench

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// toldDifferences is how many posts with a wrong count an error names.
const toldDifferences = 5

// checkCounts compares every count in MySQL with the one expected. A post without likes may be absent. Probes are posts
// that have one like each.
func checkCounts(ctx context.Context, db *sql.DB, stream *Stream, probes map[uint64]bool) error {
	rows, err := db.QueryContext(ctx, "SELECT post_id, `count` FROM like_count")
	if err != nil {
		return fmt.Errorf("reading the counts: %w", err)
	}
	defer rows.Close()
	var wrong []string
	differences, found := 0, 0
	for rows.Next() {
		var post uint64
		var have int64
		if err := rows.Scan(&post, &have); err != nil {
			return fmt.Errorf("reading the counts: %w", err)
		}
		want := stream.Count(post)
		if probes[post] {
			want = 1
		}
		if want != 0 {
			found++
		}
		if have != want {
			if differences++; differences <= toldDifferences {
				wrong = append(wrong, fmt.Sprintf("post %d has %d, not %d", post, have, want))
			}
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading the counts: %w", err)
	}
	liked := len(probes)
	for range stream.Liked() {
		liked++
	}
	if missing := liked - found; missing > 0 {
		differences += missing
		wrong = append(wrong, fmt.Sprintf("%d posts are missing", missing))
	}
	if differences > 0 {
		return fmt.Errorf("the counts are wrong, %d of %d: %s", differences, liked, strings.Join(wrong, ", "))
	}
	return nil
}
