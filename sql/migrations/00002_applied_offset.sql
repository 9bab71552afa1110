-- +goose NO TRANSACTION
-- +goose Up

-- Up to where each partition of the updates topic has been applied to like_count and like_hourly. It moves in the
-- transaction that changes them, and nowhere else. Topic names differ by case in Kafka, so they must here too (ascii_bin).
CREATE TABLE IF NOT EXISTS applied_offset (
    topic        VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    partition_id INT             NOT NULL,
    topic_id     CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    partitions   INT             NOT NULL,
    next_offset  BIGINT          NOT NULL,
    next_seq     BIGINT UNSIGNED NOT NULL,
    leader_epoch INT             NOT NULL,
    updated_at   DATETIME(3)     NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
    PRIMARY KEY (topic, partition_id)
) ENGINE = InnoDB;
