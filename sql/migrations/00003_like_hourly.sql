-- +goose NO TRANSACTION
-- +goose Up

-- Net likes and dislikes by the hour (UTC) and region where they were given. Add the rows of all partitions: each
-- partition writes its own, so that partitions never wait for one another.
CREATE TABLE IF NOT EXISTS like_hourly (
    hour         DATETIME   NOT NULL,
    region       VARCHAR(6) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    partition_id INT        NOT NULL,
    likes        BIGINT     NOT NULL,
    dislikes     BIGINT     NOT NULL,
    PRIMARY KEY (hour, region, partition_id)
) ENGINE = InnoDB;
