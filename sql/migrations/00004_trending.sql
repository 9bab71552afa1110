-- +goose NO TRANSACTION
-- +goose Up

-- The posts with the most likes in a window, by region ("global": all together). rank is from 1 without a gap. as_of is the
-- watermark of the ranking (UTC): nothing before it is awaited any more; NULL if it has none. A ranking is read as one
-- range of the primary key, WHERE region = … AND `window` = … ORDER BY `rank`, and it is replaced whole.
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
