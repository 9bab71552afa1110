package main

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"

	"kudos/integration/peers/peer"
)

const createPairs = `CREATE TABLE IF NOT EXISTS like_pair (
	post_id BIGINT UNSIGNED NOT NULL,
	user_id BIGINT UNSIGNED NOT NULL,
	action TINYINT NOT NULL,
	PRIMARY KEY (post_id, user_id)
) ENGINE=InnoDB`

// createProcedure: one round trip a like instead of four. The upsert's row count says what was there before: 1 nothing,
// 2 another action, 0 the same. The count's row, for which likes of one post queue, is locked last.
const createProcedure = `CREATE PROCEDURE take_like(IN post BIGINT UNSIGNED, IN liker BIGINT UNSIGNED, IN new_action TINYINT)
BEGIN
	DECLARE changed INT;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	INSERT INTO like_pair (post_id, user_id, action) VALUES (post, liker, new_action) ON DUPLICATE KEY UPDATE action = VALUES(action);
	SET changed = ROW_COUNT();
	IF new_action = 1 AND changed > 0 THEN
		INSERT INTO like_count (post_id, count) VALUES (post, 1) ON DUPLICATE KEY UPDATE count = count + 1;
	ELSEIF new_action = 0 AND changed = 2 THEN
		UPDATE like_count SET count = count - 1 WHERE post_id = post;
	END IF;
	COMMIT;
END`

func createTables(ctx context.Context, db *sqlx.DB) error {
	for _, statement := range []string{createPairs, "DROP PROCEDURE IF EXISTS take_like", createProcedure} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("prepare the database: %w", err)
		}
	}
	return nil
}

// state prints the size of like_pair, rebuilt, and its rows.
func state(ctx context.Context, db *sqlx.DB, lines *peer.Lines) error {
	var bytes, pairs int64
	rows, err := db.QueryContext(ctx, "OPTIMIZE TABLE like_pair") // answers with rows
	if err == nil {
		err = rows.Close()
	}
	if err == nil {
		err = db.GetContext(ctx, &bytes, "SELECT data_length + index_length FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'like_pair'")
	}
	if err == nil {
		err = db.GetContext(ctx, &pairs, "SELECT COUNT(*) FROM like_pair")
	}
	if err != nil {
		return fmt.Errorf("measure like_pair: %w", err)
	}
	return lines.State(bytes, pairs)
}
