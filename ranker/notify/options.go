package notify

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"kudos/schema"
)

// Options configure the notifier.
type Options struct {
	URL string `mapstructure:"url"` // of the webhook
	// Secret signs requests: whsec_ and a key in base64. Package config reads it from SecretFile, if that is set.
	Secret     string `mapstructure:"secret"`
	SecretFile string `mapstructure:"secret_file"`
	Source     string `mapstructure:"source"` // attribute source of the CloudEvents, a URI
	Group      string `mapstructure:"group"`  // prefix of the consumer groups: one for each webhook
	// Rankings lists the keys of the rankings to send, such as global/1h.
	Rankings []string `mapstructure:"rankings"`

	RequestTimeout time.Duration `mapstructure:"request_timeout"`
	// GiveUpAfter is how long an event is sent again before it becomes a dead letter; events after it wait meanwhile.
	GiveUpAfter     time.Duration `mapstructure:"give_up_after"`
	SessionTimeout  time.Duration `mapstructure:"session_timeout"`
	ParkInterval    time.Duration `mapstructure:"park_interval"`    // the longest pause between attempts
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"` // for the requests in flight after SIGTERM
}

// DefaultOptions send milestones, and no rankings. URL must be set.
func DefaultOptions() Options {
	return Options{Source: "/kudos", Group: "notify", Rankings: []string{}, RequestTimeout: 10 * time.Second,
		GiveUpAfter: 24 * time.Hour, SessionTimeout: 10 * time.Second, ParkInterval: 30 * time.Second,
		ShutdownTimeout: 20 * time.Second}
}

// Validate returns everything that is wrong with the options. An empty URL is valid: only the notifier needs it.
func (o Options) Validate() error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("notify."+format, args...))
		}
	}
	u, err := url.Parse(o.URL)
	refuse(o.URL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == ""),
		"url: must be an http or https URL")
	_, err = key(o.Secret)
	refuse(err != nil, "secret: must be whsec_ and a key of at least 24 bytes in base64")
	_, err = url.Parse(o.Source)
	refuse(err != nil || o.Source == "", "source: must be a URI, such as /kudos")
	refuse(o.Group == "", "group: a name is needed")
	for _, name := range o.Rankings {
		region, window, ok := strings.Cut(name, "/")
		_, known := schema.ParseRegion(region)
		refuse(!ok || window == "" || region != schema.GlobalName && !known,
			"rankings: %q is not REGION/WINDOW, such as global/1h", name)
	}
	refuse(o.RequestTimeout <= 0, "request_timeout: must be above zero")
	refuse(o.GiveUpAfter <= 0, "give_up_after: must be above zero")
	refuse(o.SessionTimeout <= 0, "session_timeout: must be above zero")
	refuse(o.ParkInterval <= 0, "park_interval: must be above zero")
	refuse(o.ShutdownTimeout <= 0, "shutdown_timeout: must be above zero")
	return errors.Join(errs...)
}

// key decodes a secret; nil without one.
func key(secret string) ([]byte, error) {
	if secret == "" {
		return nil, nil
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err == nil && (len(key) < 24 || !strings.HasPrefix(secret, "whsec_")) {
		err = errors.New("not a secret")
	}
	return key, err
}
