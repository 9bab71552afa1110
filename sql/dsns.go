package sql

import "fmt"

const maxShards = 1024

// validateDSNs checks the given DSNs. Its errors never contain a DSN.
func (o Options) validateDSNs(p *problems) {
	one, several := o.DSN != "", len(o.Shards) > 0
	migrateOne, migrateSeveral := o.MigrateDSN != "", len(o.MigrateShards) > 0
	p.addIf(one && several, "dsn and shards are both set: set only one")
	p.addIf(migrateOne && migrateSeveral, "migrate_dsn and migrate_shards are both set: set only one")
	p.addIf(several && migrateOne, "migrate_dsn is one database, but shards lists several: set migrate_shards")
	p.addIf(one && migrateSeveral, "migrate_shards lists several databases, but dsn is one: set migrate_dsn")
	p.addIf(several && migrateSeveral && len(o.Shards) != len(o.MigrateShards),
		"shards lists %d databases, but migrate_shards lists %d: they must be the same, in the same order",
		len(o.Shards), len(o.MigrateShards))
	if one {
		_, err := parseDSN(o.DSN)
		p.add(err)
	}
	if _, err := parseDSN(o.MigrateDSN); err != nil && migrateOne {
		p.add(fmt.Errorf("migrate_%w", err))
	}
	place := validateShards(p, "shards", o.Shards)
	validateShards(p, "migrate_shards", o.MigrateShards)
	// A mismatch would make the databases reject what the other list recorded. Only server names are compared here.
	for i, dsn := range o.MigrateShards {
		name := serverName(dsn)
		other, known := place[name]
		p.addIf(known && other != i,
			"migrate_shards[%d] is shards[%d], %s: they must be the same, in the same order", i, other, name)
	}
}

// validateShards returns the index of each database in the list, by its name.
func validateShards(p *problems, key string, dsns []string) (place map[string]int) {
	if len(dsns) > maxShards {
		p.add(fmt.Errorf("%s lists %d databases; at most %d are allowed", key, len(dsns), maxShards))
		return nil
	}
	place = map[string]int{}
	for i, dsn := range dsns {
		if _, err := parseDSN(dsn); err != nil {
			p.add(fmt.Errorf("%s[%d]: %w", key, i, err))
			continue
		}
		name := serverName(dsn)
		other, twice := place[name]
		p.addIf(twice, "%s[%d] and %s[%d] are the same database, %s", key, other, key, i, name)
		place[name] = i
	}
	return place
}

// OfMigrations are the options for commands that create or alter tables: `kudos migrate` and `kudos rebuild`.
func (o Options) OfMigrations() Options {
	switch {
	case o.MigrateDSN != "":
		o.DSN = o.MigrateDSN
	case len(o.MigrateShards) > 0:
		o.Shards = o.MigrateShards
	}
	return o
}

// HasServer reports whether any database is configured.
func (o Options) HasServer() bool { return o.DSN != "" || len(o.Shards) > 0 }

// Each returns the options of each database, in shard order. A single database yields one element.
func (o Options) Each() []Options {
	if len(o.Shards) == 0 {
		return []Options{o}
	}
	each := make([]Options, len(o.Shards))
	for i, dsn := range o.Shards {
		each[i] = o
		each[i].DSN, each[i].Shard = dsn, Shard{int32(i), int32(len(o.Shards))}
		each[i].Shards, each[i].MigrateShards = nil, nil
	}
	return each
}

// server names the database for logs and errors, without user and password, plus its shard if there are several.
func (o Options) server() string {
	if o.Shard.Count() == 1 {
		return serverName(o.DSN)
	}
	return fmt.Sprintf("%s (%s)", serverName(o.DSN), o.Shard)
}
