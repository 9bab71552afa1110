-- +goose NO TRANSACTION
-- +goose Up

-- The position in the topic trending that the tables trending and leaderboard reflect, per partition. Only the
-- transaction that changes them moves it. Not in applied_offset, which `kudos rebuild` replaces together with the counts.
CREATE TABLE IF NOT EXISTS trending_position (
    topic        VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    partition_id INT         NOT NULL,
    topic_id     CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    partitions   INT         NOT NULL,
    next_offset  BIGINT      NOT NULL,
    leader_epoch INT         NOT NULL,
    updated_at   DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
    PRIMARY KEY (topic, partition_id)
) ENGINE = InnoDB;
