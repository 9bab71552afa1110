-- +goose NO TRANSACTION
-- +goose Up

-- The posts with the most likes in a window, by region ("global": all regions). rank starts at 1 and has no gaps. as_of
-- is the ranking's watermark (UTC), NULL if it has none. Read a ranking as one range of the primary key,
-- WHERE region = … AND `window` = … ORDER BY `rank`. Each update replaces the whole ranking.
CREATE TABLE IF NOT EXISTS trending (
    region   VARCHAR(6) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    `window` VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    `rank`   INT             NOT NULL,
    post_id  BIGINT UNSIGNED NOT NULL,
    score    DECIMAL(20, 6)  NOT NULL,
    likes    BIGINT          NOT NULL,
    as_of    DATETIME        NULL,
    PRIMARY KEY (region, `window`, `rank`)
) ENGINE = InnoDB;
