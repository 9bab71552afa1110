-- +goose NO TRANSACTION
-- +goose Up

-- The most liked posts of the day (UTC) that contains as_of, and of all time, by region ("global": all
-- regions). Read and replaced like trending.
CREATE TABLE IF NOT EXISTS leaderboard (
    region  VARCHAR(6) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    period  VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- day or all
    `rank`  INT             NOT NULL,
    post_id BIGINT UNSIGNED NOT NULL,
    likes   BIGINT          NOT NULL,
    as_of   DATETIME        NULL,
    PRIMARY KEY (region, period, `rank`)
) ENGINE = InnoDB;
