-- +goose NO TRANSACTION
-- +goose Up

-- How many users like and dislike each post now. Signed: a negative count is a defect that must be seen.
-- updated_at is UTC (every session of kudos runs in +00:00).
CREATE TABLE IF NOT EXISTS like_count (
    post_id       BIGINT UNSIGNED NOT NULL,
    `count`       BIGINT          NOT NULL,
    dislike_count BIGINT          NOT NULL,
    updated_at    DATETIME(3)     NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
    PRIMARY KEY (post_id)
) ENGINE = InnoDB;
