-- +goose NO TRANSACTION
-- +goose Up

-- Net likes and dislikes by the hour (UTC) and region in which they were given. Sum over all partitions: each partition
-- writes its own rows, so that partitions never wait for each other's locks.
CREATE TABLE IF NOT EXISTS like_hourly (
    hour         DATETIME   NOT NULL,
    region       VARCHAR(6) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    partition_id INT        NOT NULL,
    likes        BIGINT     NOT NULL,
    dislikes     BIGINT     NOT NULL,
    PRIMARY KEY (hour, region, partition_id)
) ENGINE = InnoDB;
