package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"kudos/schema"
)

// Options configure the bridge.
type Options struct {
	Topic   string  `mapstructure:"topic"`  // the source topic
	Group   string  `mapstructure:"group"`  // of the consumer offsets, and the prefix of the transactional ids
	Format  string  `mapstructure:"format"` // debezium, json or cloudevents
	Columns Columns `mapstructure:"columns"`
	// Registry, if its URL is set, has the schemas of records that name one: in Avro, or JSON.
	Registry RegistryOptions `mapstructure:"registry"`
	// Reactions lists what the values of Columns.Reaction mean, as VALUE=ACTION; empty: they are named as in kudos.
	Reactions []string `mapstructure:"reactions"`

	MaxBatch int `mapstructure:"max_batch"` // source records of a partition in one transaction
	// TransactionTimeout is how long Kafka keeps a dead process's transaction open, blocking read_committed consumers.
	TransactionTimeout time.Duration `mapstructure:"transaction_timeout"`
	SessionTimeout     time.Duration `mapstructure:"session_timeout"`
	ParkInterval       time.Duration `mapstructure:"park_interval"`    // between retries of a parked partition
	ShutdownTimeout    time.Duration `mapstructure:"shutdown_timeout"` // for the batch in flight after SIGTERM

	UserBuckets schema.UserBuckets `mapstructure:"-"`
	// OpenRegistry connects to Registry; nil in a program built without cli/full.
	OpenRegistry func(RegistryOptions) (Registry, error) `mapstructure:"-"`
}

// RegistryOptions are the address of a schema registry with Confluent's API, and a user of it, or none.
type RegistryOptions struct {
	URL  string `mapstructure:"url"`
	User string `mapstructure:"user"`
	// Package config reads Password from PasswordFile, if that is set.
	Password     string `mapstructure:"password"`
	PasswordFile string `mapstructure:"password_file"`
}

// Registry decodes what serializers for a schema registry wrote.
type Registry interface {
	// JSON returns a value as JSON. It fails with a *schema.PoisonError if the value or its schema is invalid, or the
	// schema is not there some time after the value was written.
	JSON(ctx context.Context, value []byte, written time.Time) ([]byte, error)
}

// Columns are the names of columns or JSON fields. Empty ones, except the ids, are not used.
type Columns struct {
	PostID   string `mapstructure:"post_id"`
	UserID   string `mapstructure:"user_id"`
	Time     string `mapstructure:"time"`
	Deleted  string `mapstructure:"deleted"`  // the reaction is withdrawn unless it is null, false, 0 or empty
	Reaction string `mapstructure:"reaction"` // see Options.Reactions; without it, a row is a like
	Region   string `mapstructure:"region"`
}

// DefaultOptions read the columns post_id and user_id of a table that Debezium captures. Topic must be set.
func DefaultOptions() Options {
	return Options{
		Group: "likes-bridge", Format: "debezium", Columns: Columns{PostID: "post_id", UserID: "user_id"},
		Reactions: []string{},
		MaxBatch:  10_000, TransactionTimeout: 30 * time.Second, SessionTimeout: 10 * time.Second,
		ParkInterval: 5 * time.Second, ShutdownTimeout: 20 * time.Second,
	}
}

// Validate returns everything that is wrong with the options. An empty Topic is valid: only the bridge itself needs it.
func (o Options) Validate() error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("bridge."+format, args...))
		}
	}
	refuse(slices.ContainsFunc(schema.Topics(1, 1), func(t schema.Topic) bool { return t.Name == o.Topic }),
		"topic: %s is a topic of kudos, not a source", o.Topic)
	refuse(o.Group == "" || slices.Contains(groups, o.Group), "group: %q is empty, or a group of kudos", o.Group)
	refuse(formats[o.Format] == nil, "format: %q is not one of debezium, json, cloudevents", o.Format)
	at, err := url.Parse(o.Registry.URL)
	refuse(o.Registry.URL != "" && (err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https"),
		"registry.url: must be an http or https URL")
	refuse(at != nil && at.User != nil, "registry.url: set bridge.registry.user instead: URLs are in error messages")
	refuse(o.Columns.PostID == "", "columns.post_id: a name is needed")
	refuse(o.Columns.UserID == "", "columns.user_id: a name is needed")
	_, err = parseReactions(o.Reactions)
	refuse(err != nil, "reactions: %v", err)
	refuse(len(o.Reactions) > 0 && o.Columns.Reaction == "", "reactions: columns.reaction is not set")
	refuse(o.MaxBatch < 1 || o.MaxBatch > 100_000, "max_batch: must be between 1 and 100000")
	refuse(o.TransactionTimeout <= 0, "transaction_timeout: must be above zero")
	refuse(o.SessionTimeout <= 0, "session_timeout: must be above zero")
	refuse(o.ParkInterval <= 0, "park_interval: must be above zero")
	refuse(o.ShutdownTimeout <= 0, "shutdown_timeout: must be above zero")
	return errors.Join(errs...)
}

var groups = []string{schema.GroupFold, schema.GroupApply, schema.GroupTrendingLocal, schema.GroupTrending,
	schema.GroupTrendingMySQL, schema.GroupReactions, schema.GroupAudit}

var actions = map[string]schema.Action{"LIKE": schema.Like, "UNLIKE": schema.Unlike, "DISLIKE": schema.Dislike}

// parseReactions parses a list of VALUE=ACTION.
func parseReactions(list []string) (map[string]schema.Action, error) {
	if len(list) == 0 {
		return map[string]schema.Action{"LIKE": schema.Like, "UNLIKE": schema.Unlike, "DISLIKE": schema.Dislike,
			"true": schema.Like, "false": schema.Unlike}, nil
	}
	reactions := map[string]schema.Action{}
	for _, s := range list {
		i := strings.LastIndexByte(s, '=')
		action := actions[s[i+1:]]
		if i < 0 || action == 0 {
			return nil, fmt.Errorf("%q is not VALUE=ACTION with LIKE, UNLIKE or DISLIKE, such as love=LIKE", s)
		}
		if reactions[s[:i]] != 0 {
			return nil, fmt.Errorf("%q is listed twice", s[:i])
		}
		reactions[s[:i]] = action
	}
	return reactions, nil
}
