package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/viper"
)

// Sources are where settings come from, besides the environment.
type Sources struct {
	// File is a YAML file, or "" for none.
	File string
	// Flags are the settings of the command line, by key.
	Flags map[string]Flag
}

// Flag is a setting of the command line.
type Flag struct {
	// Name is how it was given, for messages: --brokers.
	Name string
	// Value is its text; a list is separated by commas.
	Value string
}

// ParseSet reads the argument of --set, key=value.
func ParseSet(arg string) (key string, flag Flag, err error) {
	key, value, ok := strings.Cut(arg, "=")
	if !ok || key == "" {
		return "", Flag{}, errors.New("--set needs key=value, such as --set topics.partitions=16") // arg may be a secret
	}
	return strings.ToLower(strings.TrimSpace(key)), Flag{Name: "--set", Value: value}, nil
}

// Loaded is a complete and valid configuration.
type Loaded struct {
	Config
	origins map[string]Origin
}

// Origin says where a value came from.
type Origin struct {
	// Kind is flag, env, file or default.
	Kind string
	// Name is the flag, the variable or the file; "" for a default.
	Name string
}

func (o Origin) String() string { return strings.TrimSpace(o.Kind + " " + o.Name) }

// Origin returns where the key's value came from.
func (l *Loaded) Origin(key string) Origin { return l.origins[key] }

// Load fills the tree from all sources, and validates it. Its error holds everything
// that is wrong and not only the first of it.
func Load(src Sources) (*Loaded, error) {
	l := &Loaded{Config: Default(), origins: map[string]Origin{}}
	tree := settings(&l.Config)
	file, err := readFile(src.File)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(unknownFlags(src, tree), unknownEnv(tree), unknownInFile(file, src.File, tree)); err != nil {
		return nil, err
	}
	v, err := newViper(src, file, tree)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, s := range tree {
		origin := originOf(v, src, s.key)
		l.origins[s.key] = origin
		if origin.Kind == "default" {
			continue
		}
		if err := decode(v.Get(s.key), s); err != nil {
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

// readFile returns what the file alone says.
func readFile(path string) (*viper.Viper, error) {
	file := viper.New()
	if path == "" {
		return file, nil
	}
	file.SetConfigFile(path)
	file.SetConfigType("yaml")
	if err := file.ReadInConfig(); err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	return file, nil
}

// newViper gives viper every source; what goes before what is viper's own order:
// Set, environment, file, default.
func newViper(src Sources, file *viper.Viper, tree []setting) (*viper.Viper, error) {
	v := viper.New()
	for _, s := range tree {
		v.SetDefault(s.key, s.value.Interface())
		if err := v.BindEnv(s.key, EnvName(s.key)); err != nil {
			return nil, fmt.Errorf("bind %s: %w", EnvName(s.key), err)
		}
	}
	for key, flag := range src.Flags {
		v.Set(key, flag.Value)
	}
	if err := v.MergeConfigMap(file.AllSettings()); err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", src.File, err)
	}
	return v, nil
}

func originOf(v *viper.Viper, src Sources, key string) Origin {
	if flag, ok := src.Flags[key]; ok {
		return Origin{"flag", flag.Name}
	}
	// viper takes an empty variable for one that is not set.
	if name := EnvName(key); os.Getenv(name) != "" {
		return Origin{"env", name}
	}
	if v.InConfig(key) {
		return Origin{"file", src.File}
	}
	return Origin{Kind: "default"}
}

// unknownInFile refuses what the file has and the tree does not.
func unknownInFile(file *viper.Viper, path string, tree []setting) error {
	known := keysOf(tree)
	var errs []error
	for _, key := range slices.Sorted(slices.Values(file.AllKeys())) {
		switch {
		case slices.Contains(known, key):
		case isSection(key, known):
			if file.Get(key) != nil { // empty is fine: all of its lines may be comments
				errs = append(errs, fmt.Errorf("%s: %s must hold keys, not a value", path, key))
			}
		default:
			errs = append(errs, unknown(path+": key", key, known))
		}
	}
	return errors.Join(errs...)
}

// unknownFlags refuses settings of the command line that the tree does not have.
func unknownFlags(src Sources, tree []setting) error {
	known := keysOf(tree)
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(src.Flags)) {
		if !slices.Contains(known, key) {
			errs = append(errs, unknown(src.Flags[key].Name+": key", key, known))
		}
	}
	return errors.Join(errs...)
}

// notOurs matches the KUDOS_… variables that are no settings: those of the project's
// tests, and those that Kubernetes makes for a Service whose name begins with kudos-.
var notOurs = regexp.MustCompile(`^KUDOS_TEST_|_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT(_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)?$`)

// unknownEnv refuses KUDOS_… variables that the tree does not have.
func unknownEnv(tree []setting) error {
	known := make([]string, len(tree))
	for i, s := range tree {
		known[i] = EnvName(s.key)
	}
	var errs []error
	for _, entry := range slices.Sorted(slices.Values(os.Environ())) {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(known, name) && !notOurs.MatchString(name) {
			errs = append(errs, unknown("environment variable", name, known))
		}
	}
	return errors.Join(errs...)
}
