package kafka

import (
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/plugin/kslog"
)

// clientLog logs a client's warnings, without info messages: several per transaction. While a broker is unavailable,
// every client reports every attempt: the process logs the first, and when the broker answers, how many there were.
type clientLog struct {
	kgo.Logger
	log *slog.Logger
}

func newClientLog(log *slog.Logger) clientLog { return clientLog{kslog.New(log), log} }

// failures has the failed attempts, by broker, of all clients of the process.
var failures = struct {
	sync.Mutex
	of map[string]int
}{of: map[string]int{}}

func (l clientLog) Level() kgo.LogLevel { return min(l.Logger.Level(), kgo.LogLevelWarn) }

func (l clientLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	values := map[any]any{}
	for i := 1; i < len(keyvals); i += 2 {
		values[keyvals[i-1]] = keyvals[i]
	}
	err, _ := values["err"].(error)
	if kgo.IsRetryableBrokerErr(err) || errors.As(err, new(*net.OpError)) {
		level = kgo.LogLevelDebug
		failures.Lock()
		defer failures.Unlock()
		if addr, ok := values["addr"].(string); ok {
			if failures.of[addr]++; failures.of[addr] == 1 {
				l.log.Warn("Kafka broker is unavailable", "addr", addr, "client", msg, "error", err)
			}
		}
	}
	l.Logger.Log(level, msg, keyvals...)
}

// unauthenticated are requests that a broker answers before authentication, which may fail.
var unauthenticated = []kmsg.Key{kmsg.ApiVersions, kmsg.SASLHandshake, kmsg.SASLAuthenticate}

// OnBrokerRead notices that a broker answers.
func (l clientLog) OnBrokerRead(meta kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	failures.Lock()
	defer failures.Unlock()
	addr := net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port)))
	if n := failures.of[addr]; n > 0 && err == nil && !slices.Contains(unauthenticated, kmsg.Key(key)) {
		delete(failures.of, addr)
		l.log.Info("Kafka broker answers again", "addr", addr, "failed_attempts", n)
	}
}
