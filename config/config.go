// Package config puts the settings of all roles into one tree and fills it: a flag
// goes before a KUDOS_… environment variable, that before the file, that before the
// default. It is strict: a key that does not exist is refused with the nearest one
// that does, and a value of the wrong type with the key and where it was given.
//
// In come a file, the environment and the settings of the command line; out comes a
// Config whose parts the commands hand to the roles, and for each key where its
// value came from. It is the only package that imports viper, and no role imports it.
package config

import (
	"errors"
	"fmt"
	"strings"

	"kudos/archive"
	"kudos/httpserver/admin"
	"kudos/ops/topics"
	"kudos/processor"
	"kudos/producer"
	"kudos/ranker"
	"kudos/reader"
	"kudos/sql"
	"kudos/stream/kafka"
)

// Config is every setting of the program. The tags of the fields are the keys.
type Config struct {
	Kafka     kafka.Options     `mapstructure:"kafka"`
	MySQL     sql.Options       `mapstructure:"mysql"`
	Topics    topics.Options    `mapstructure:"topics"`
	Producer  producer.Options  `mapstructure:"producer"`
	Processor processor.Options `mapstructure:"processor"`
	Ranker    ranker.Options    `mapstructure:"ranker"`
	Reader    reader.Options    `mapstructure:"reader"`
	Archive   archive.Options   `mapstructure:"archive"`
	Admin     admin.Options     `mapstructure:"admin"`
	Log       Log               `mapstructure:"log"`
}

// Log is how the program logs, to standard error.
type Log struct {
	// Level is the least that is logged: debug, info, warn or error.
	Level string `mapstructure:"level"`
	// Format is text, json, or auto: text on a terminal, json elsewhere.
	Format string `mapstructure:"format"`
}

// Default is what holds where nothing is set.
func Default() Config {
	return Config{
		Kafka:     kafka.DefaultOptions(),
		MySQL:     sql.DefaultOptions(),
		Topics:    topics.DefaultOptions(),
		Producer:  producer.DefaultOptions(),
		Processor: processor.DefaultOptions(),
		Ranker:    ranker.DefaultOptions(),
		Reader:    reader.DefaultOptions(),
		Archive:   archive.DefaultOptions(),
		Admin:     admin.DefaultOptions(),
		Log:       Log{Level: "info", Format: "auto"},
	}
}

// Validate says what is wrong with the settings, all of it. A DSN may be missing: not
// every command needs one. Those that do ask RequireMySQL.
func (c Config) Validate() error {
	return errors.Join(
		named("kafka", c.Kafka.Validate()),
		named("mysql", c.MySQL.ValidateOptional()),
		named("topics", c.Topics.Validate()),
		named("producer", c.Producer.Validate()),
		named("processor", c.Processor.Validate()),
		named("ranker", c.Ranker.Validate()),
		named("reader", c.Reader.Validate()),
		named("archive", c.Archive.Validate()),
		named("admin", c.Admin.Validate()),
		named("log", c.Log.Validate()),
	)
}

// RequireMySQL refuses a configuration without a database.
func (c Config) RequireMySQL() error {
	if c.MySQL.HasServer() {
		return nil
	}
	return errors.New("mysql.dsn is not set: give --mysql-dsn, KUDOS_MYSQL_DSN or mysql.dsn in the file, as user:password@tcp(host:3306)/database; or KUDOS_MYSQL_DSN_FILE, a file that holds it; or several in mysql.shards")
}

// named puts the section before each error that does not begin with it, so that
// every message begins with the key as it stands in the file.
func named(section string, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, e := range joined.Unwrap() {
			errs = append(errs, named(section, e))
		}
		return errors.Join(errs...)
	}
	if err == nil || strings.HasPrefix(err.Error(), section+".") {
		return err
	}
	return fmt.Errorf("%s.%w", section, err)
}
