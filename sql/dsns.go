package sql

import "fmt"

// maxShards bounds the list.
const maxShards = 1024

// validateDSNs tells what is wrong with those that are given, and never repeats one.
func (o Options) validateDSNs() (errs []error) {
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	one, several := o.DSN != "", len(o.Shards) > 0
	migrateOne, migrateSeveral := o.MigrateDSN != "", len(o.MigrateShards) > 0
	refuse(one && several, "dsn and shards are both given: give one")
	refuse(migrateOne && migrateSeveral, "migrate_dsn and migrate_shards are both given: give one")
	refuse(several && migrateOne, "migrate_dsn is of one database, and shards is of several: give migrate_shards")
	refuse(one && migrateSeveral, "migrate_shards is of several databases, and dsn is of one: give migrate_dsn")
	refuse(several && migrateSeveral && len(o.Shards) != len(o.MigrateShards),
		"shards names %d databases, and migrate_shards %d: they must be the same, in the same order", len(o.Shards), len(o.MigrateShards))
	if one {
		_, err := parseDSN(o.DSN)
		errs = append(errs, err)
	}
	if _, err := parseDSN(o.MigrateDSN); err != nil && migrateOne {
		errs = append(errs, fmt.Errorf("migrate_%w", err))
	}
	errs = append(errs, validateShards("shards", o.Shards)...)
	errs = append(errs, validateShards("migrate_shards", o.MigrateShards)...)
	return append(errs, o.validateOrder()...)
}

// validateOrder refuses a database that has another place in migrate_shards than in shards, as far as names tell. What is
// recorded by the one would be refused by the other.
func (o Options) validateOrder() (errs []error) {
	place := map[string]int{}
	for i, dsn := range o.Shards {
		if _, err := parseDSN(dsn); err == nil {
			place[serverName(dsn)] = i
		}
	}
	for i, dsn := range o.MigrateShards {
		if other, known := place[serverName(dsn)]; known && other != i {
			errs = append(errs, fmt.Errorf("migrate_shards[%d] is shards[%d], %s: they must be the same, in the same order", i, other, serverName(dsn)))
		}
	}
	return errs
}

func validateShards(key string, dsns []string) (errs []error) {
	if len(dsns) > maxShards {
		return []error{fmt.Errorf("%s has %d databases; at most %d", key, len(dsns), maxShards)}
	}
	first := map[string]int{}
	for i, dsn := range dsns {
		if _, err := parseDSN(dsn); err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", key, i, err))
			continue
		}
		name := serverName(dsn)
		if other, twice := first[name]; twice {
			errs = append(errs, fmt.Errorf("%s[%d] and %s[%d] are the same database, %s", key, other, key, i, name))
		}
		first[name] = i
	}
	return errs
}

// OfMigrations are the options of whoever makes and changes tables: `kudos migrate` and `kudos rebuild`.
func (o Options) OfMigrations() Options {
	switch {
	case o.MigrateDSN != "":
		o.DSN = o.MigrateDSN
	case len(o.MigrateShards) > 0:
		o.Shards = o.MigrateShards
	}
	return o
}

// HasServer tells whether any database is named.
func (o Options) HasServer() bool { return o.DSN != "" || len(o.Shards) > 0 }

// Each are the options of each database, in the order of the shards; of the only one, if there is one.
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

// server tells people which database DSN is, without user and password; and which shard, where there are several.
func (o Options) server() string {
	if o.Shard.Count() == 1 {
		return serverName(o.DSN)
	}
	return fmt.Sprintf("%s (%s)", serverName(o.DSN), o.Shard)
}
