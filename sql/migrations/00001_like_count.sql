-- +goose NO TRANSACTION
-- +goose Up

-- Current likes and dislikes of each post. Signed, so that a negative count, which would be a bug, is visible.
-- updated_at is UTC (every kudos session uses time zone +00:00).
CREATE TABLE IF NOT EXISTS like_count (
    post_id       BIGINT UNSIGNED NOT NULL,
    `count`       BIGINT          NOT NULL,
    dislike_count BIGINT          NOT NULL,
    updated_at    DATETIME(3)     NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
    PRIMARY KEY (post_id)
) ENGINE = InnoDB;
