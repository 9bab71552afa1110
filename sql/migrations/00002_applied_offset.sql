-- +goose NO TRANSACTION
-- +goose Up

-- The position in like-updates that like_count and like_hourly reflect, per partition. Only the transaction that changes
-- them moves it. Topic names are case-sensitive in Kafka, so they must be here, too (ascii_bin).
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
