-- +goose NO TRANSACTION
-- +goose Up

-- Which shard this database is: it has partition p of every topic if p % shards = shard. `kudos migrate` writes the only
-- row once, so that kudos can reject a different list of databases, which would count a partition in two places.
CREATE TABLE IF NOT EXISTS kudos_shard (
    id          TINYINT     NOT NULL, -- always 1
    shard       INT         NOT NULL, -- from 0
    shards      INT         NOT NULL,
    recorded_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
    PRIMARY KEY (id)
) ENGINE = InnoDB;
