// Package config loads the settings of all roles. A flag overrides a KUDOS_… environment variable, which overrides the
// file, which overrides the default. Loading is strict: it rejects an unknown key and suggests the nearest known one,
// and it rejects a value of the wrong type, naming the key and its source.
//
// The commands pass the parts of a Config to the roles. Only this package, which no role imports, imports viper.
package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/viper"

	"kudos/archive"
	"kudos/httpserver/admin"
	"kudos/ops/topics"
	"kudos/processor"
	"kudos/producer"
	"kudos/producer/bridge"
	"kudos/ranker"
	"kudos/ranker/notify"
	"kudos/reader"
	"kudos/sql"
	"kudos/stream/kafka"
)

// Config has every setting of the program. The tags of the fields are the keys.
type Config struct {
	Kafka     kafka.Options     `mapstructure:"kafka"`
	MySQL     sql.Options       `mapstructure:"mysql"`
	Topics    topics.Options    `mapstructure:"topics"`
	Producer  producer.Options  `mapstructure:"producer"`
	Processor processor.Options `mapstructure:"processor"`
	Ranker    ranker.Options    `mapstructure:"ranker"`
	Reader    reader.Options    `mapstructure:"reader"`
	Archive   archive.Options   `mapstructure:"archive"`
	Bridge    bridge.Options    `mapstructure:"bridge"`
	Notify    notify.Options    `mapstructure:"notify"`
	Admin     admin.Options     `mapstructure:"admin"`
	Log       Log               `mapstructure:"log"`
}

// Default returns the default settings.
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
		Bridge:    bridge.DefaultOptions(),
		Notify:    notify.DefaultOptions(),
		Admin:     admin.DefaultOptions(),
		Log:       Log{Level: "info", Format: "auto"},
	}
}

// Validate reports every invalid setting. A DSN may be missing; the commands that need one call RequireMySQL.
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
		named("bridge", c.Bridge.Validate()),
		named("notify", c.Notify.Validate()),
		named("admin", c.Admin.Validate()),
		named("log", c.Log.Validate()),
	)
}

// RequireMySQL fails if no database is configured.
func (c Config) RequireMySQL() error {
	if c.MySQL.HasServer() {
		return nil
	}
	return errors.New("mysql.dsn is not set: set --mysql-dsn, KUDOS_MYSQL_DSN or mysql.dsn in the file, to " +
		"user:password@tcp(host:3306)/database; or KUDOS_MYSQL_DSN_FILE to a file that contains it; " +
		"or several in mysql.shards")
}

// named puts the section in front of errors that lack it, so that every message starts with the key as in the file.
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

// Log configures logging to standard error.
type Log struct {
	Level  string `mapstructure:"level"`  // the lowest level that is logged: debug, info, warn or error
	Format string `mapstructure:"format"` // text, json, or auto: text on a terminal, json elsewhere
}

// Validate reports every invalid setting.
func (l Log) Validate() error {
	var errs []error
	if _, err := l.level(); err != nil {
		errs = append(errs, err)
	}
	if l.Format != "auto" && l.Format != "text" && l.Format != "json" {
		errs = append(errs, fmt.Errorf("log.format: %q is not one of auto, text, json", l.Format))
	}
	return errors.Join(errs...)
}

func (l Log) level() (level slog.Level, err error) {
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return level, fmt.Errorf("log.level: %q is not one of debug, info, warn, error", l.Level)
	}
	return level, nil
}

// New returns the logger for valid settings. terminal means that w is a terminal.
func (l Log) New(w io.Writer, terminal bool) *slog.Logger {
	level, _ := l.level() // Validate has checked it
	opts := &slog.HandlerOptions{Level: level}
	if l.Format == "json" || l.Format == "auto" && !terminal {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// Sources are the sources of settings, besides the environment.
type Sources struct {
	File  string          // YAML; "" for none
	Flags map[string]Flag // by key
}

// Flag is a setting from the command line.
type Flag struct {
	Name  string // as given, for messages: --brokers
	Value string // comma-separated for a list
}

// ParseSet parses the argument of --set, key=value.
func ParseSet(arg string) (key string, flag Flag, err error) {
	key, value, ok := strings.Cut(arg, "=")
	if !ok || key == "" {
		// Don't print arg, which may be a secret.
		return "", Flag{}, errors.New("--set needs key=value, such as --set topics.partitions=16")
	}
	return strings.ToLower(strings.TrimSpace(key)), Flag{Name: "--set", Value: value}, nil
}

// Loaded is a complete and valid configuration.
type Loaded struct {
	Config
	origins map[string]Origin
}

// Origin is where a value came from.
type Origin struct {
	Kind string // flag, env, file or default
	Name string // of the flag, the variable or the file; "" for a default
}

func (o Origin) String() string { return strings.TrimSpace(o.Kind + " " + o.Name) }

// Origin returns the origin of a key's value.
func (l *Loaded) Origin(key string) Origin { return l.origins[key] }

// Load reads and validates all settings. Its error lists everything that is wrong, not only the first problem.
func Load(src Sources) (*Loaded, error) {
	l := &Loaded{Config: Default(), origins: map[string]Origin{}}
	tree := settings(&l.Config)
	file := viper.New()
	if src.File != "" {
		file.SetConfigFile(src.File)
		file.SetConfigType("yaml")
		if err := file.ReadInConfig(); err != nil {
			return nil, fmt.Errorf("configuration file %s: %w", src.File, err)
		}
	}
	if err := checkNames(src, file, tree); err != nil {
		return nil, err
	}
	var errs []error
	for _, s := range tree {
		value, origin := find(s.key, src, file)
		l.origins[s.key] = origin
		if origin.Kind == "default" {
			continue
		}
		if err := decode(value, s); err != nil {
			errs = append(errs, fmt.Errorf("%s (%s): %w", s.key, origin, err))
		}
	}
	errs = append(errs, l.readSecrets(tree))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return l, nil
}

// find returns the value of a key from the source with the highest precedence.
func find(key string, src Sources, file *viper.Viper) (value any, from Origin) {
	if flag, ok := src.Flags[key]; ok {
		return flag.Value, Origin{"flag", flag.Name}
	}
	name := EnvName(key)
	if text := os.Getenv(name); text != "" { // an empty variable counts as not set
		return text, Origin{"env", name}
	}
	if file.InConfig(key) {
		return file.Get(key), Origin{"file", src.File}
	}
	return nil, Origin{Kind: "default"}
}

// notOurs matches the KUDOS_… variables of the tests, and those that Kubernetes creates for a Service named kudos-….
var notOurs = regexp.MustCompile(`^KUDOS_TEST_|_SERVICE_HOST$|_SERVICE_PORT(_|$)` +
	`|_PORT(_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)?$`)

func checkNames(src Sources, file *viper.Viper, tree []setting) error {
	var keys, variables []string
	for _, s := range tree {
		keys, variables = append(keys, s.key), append(variables, EnvName(s.key))
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(src.Flags)) {
		if !slices.Contains(keys, key) {
			errs = append(errs, unknown(src.Flags[key].Name+": key", key, keys))
		}
	}
	for _, entry := range slices.Sorted(slices.Values(os.Environ())) {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(variables, name) && !notOurs.MatchString(name) {
			errs = append(errs, unknown("environment variable", name, variables))
		}
	}
	for _, key := range slices.Sorted(slices.Values(file.AllKeys())) {
		isSection := slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, key+".") })
		switch {
		case slices.Contains(keys, key):
		case isSection && file.Get(key) == nil: // a section with nothing but comments
		case isSection:
			errs = append(errs, fmt.Errorf("%s: %s must hold keys, not a value", src.File, key))
		default:
			errs = append(errs, unknown(src.File+": key", key, keys))
		}
	}
	return errors.Join(errs...)
}
