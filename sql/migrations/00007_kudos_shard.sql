-- +goose NO TRANSACTION
-- +goose Up

-- Which of the shards this database is: of so many, the one with this number has partition p of each topic if p modulo
-- shards is shard. One row, which `kudos migrate` writes once: another list of servers would count a partition in two places.
CREATE TABLE IF NOT EXISTS kudos_shard (
    id          TINYINT     NOT NULL, -- always 1
    shard       INT         NOT NULL, -- from 0
    shards      INT         NOT NULL,
    recorded_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
    PRIMARY KEY (id)
) ENGINE = InnoDB;
