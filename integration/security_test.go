package integration

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/config"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

const secret = "-s3cret" // ends every password of these tests; must never be printed

// secured runs roles and commands as users with docs/security.md's permissions: Kafka mTLS and SCRAM, MySQL mTLS.
type secured struct {
	*system
	authority *stack.Authority
	database  *stack.Database

	settings map[string]string // path of a file, by user
	roles    map[string]*process
	api      string // the producer's address
	reads    *reader
	want     map[uint64]count
}

// mysqlSetting is the setting for MySQL's credentials of each user; commands that create tables have another one.
var mysqlSetting = map[string]string{
	"processor": "dsn_file", "ranker": "dsn_file", "reader": "dsn_file", "audit": "dsn_file",
	"migrate": "migrate_dsn_file", "rebuild": "migrate_dsn_file", "repartition": "migrate_dsn_file",
}

func newSecured(t *testing.T) *secured {
	parallel(t, tier.Verify)
	s := &secured{system: newSystem(t), authority: stack.NewAuthority(t), settings: map[string]string{},
		roles: map[string]*process{}, want: map[uint64]count{}}
	properties := maps.Clone(kafkaProperties)
	maps.Copy(properties, unverified)
	s.kafka = stack.KafkaForTest(t, stack.KafkaOptions{Log: s.log, Secure: s.authority, ExtraProperties: properties})
	s.brokers = s.kafka.Brokers() // all clients of the plain listener are super users
	own := s.authority.IssueForTest(t, "mysql")
	s.database = stack.MariaDBForTest(t, stack.DatabaseOptions{Log: s.log,
		ExtraArgs: []string{"--ssl-ca=" + s.authority.CA(), "--ssl-cert=" + own.Cert, "--ssl-key=" + own.Key}})
	require.NoError(t, s.database.CreateDatabase(t.Context(), "kudos"))
	s.dsn = s.database.DSN("kudos")
	s.connect()

	all, passwords := permissionsOfTheDocs(t), map[string]string{}
	for _, p := range all {
		passwords[p.user] = p.user + secret
	}
	require.NoError(t, s.kafka.AddUsers(t.Context(), passwords))
	s.grant(all...)
	for user, password := range passwords {
		s.settings[user] = s.settingsOf(user, password)
		cl := s.clientAs(user)
		waitFor(t, time.Minute, user+" to be authenticated", func() bool { return cl.Ping(t.Context()) == nil })
	}
	s.grantInMySQL(0)
	s.settings["migrate"] = s.settingsOf("migrate", "none")
	s.as("migrate", "migrate")
	s.grantInMySQL(1)
	s.makeTopics()
	return s
}

// makeTopics lets apply create topics, recreate deleted ones for which the group has an offset, and correct settings.
func (s *secured) makeTopics() {
	s.as("topics", "topics", "apply")
	s.deleteTopic(schema.TopicState)
	s.deleteTopic(schema.TopicUpdates)
	require.NoError(s.t, s.commitFold(map[int32]int64{0: 1}))
	s.as("topics", "topics", "apply")
	for _, topic := range schema.Topics(partitions, 1) {
		s.configure(map[string]string{"unclean.leader.election.enable": "true"}, topic.Name)
	}
	require.NotZero(s.t, s.run("topics", "check", "--config", s.settings["topics"]).code)
	s.as("topics", "topics", "apply")
}

// unusual writes rare records: an invalid event, one in JSON, and an aborted transaction at the end of each partition.
func (s *secured) unusual() {
	poison := &kgo.Record{Topic: schema.TopicLikes, Key: schema.AppendPostKey(nil, 1), Value: []byte("not an event")}
	require.NoError(s.t, s.clientAs("producer").ProduceSync(s.t.Context(), poison).FirstErr())
	waitFor(s.t, time.Minute, "the dead letter", func() bool { return s.written(s.t.Context(), schema.TopicDLT) > 0 })
	inJSON := &kgo.Record{Topic: schema.TopicLikes, Key: poison.Key,
		Value: []byte(`{"post_id":"1","user_id":99,"action":"UNLIKE"}`)}
	require.NoError(s.t, s.clientAs("producer").ProduceSync(s.t.Context(), inJSON).FirstErr())
	cl := s.client(kgo.TransactionalID("nobody"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(s.t, cl.BeginTransaction())
	for partition := range int32(partitions) {
		like := record(likeNow(1, 99))
		like.Topic, like.Partition = schema.TopicLikes, partition
		require.NoError(s.t, cl.ProduceSync(s.t.Context(), like).FirstErr())
	}
	require.NoError(s.t, cl.EndTransaction(s.t.Context(), kgo.TryAbort))
}

// settingsOf writes the settings of a user, which differ only in the credentials.
func (s *secured) settingsOf(user, password string) string {
	dir := s.t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(s.t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	own := s.authority.IssueForTest(s.t, "client-"+user)
	tls := fmt.Sprintf("tls: true, tls_ca: %s, tls_cert: %s, tls_key: %s", s.authority.CA(), own.Cert, own.Key)
	text := fmt.Sprintf("topics: {partitions: %d, replication_factor: 1}\nkafka: {brokers: [%q], "+
		"sasl_mechanism: SCRAM-SHA-512, sasl_user: %s, sasl_password_file: %s, %s}\n", partitions, s.kafka.Secure()[0],
		user, write("password", password+"\n"), tls)
	setting := mysqlSetting[user]
	if setting == "" {
		return write("kudos.yaml", text+"mysql: {"+tls+"}\n")
	}
	if setting == "migrate_dsn_file" {
		user = "migrate"
	}
	dsn := fmt.Sprintf("kudos_%[1]s:%[1]s%[2]s@tcp(%[3]s)/kudos\n", user, secret, s.database.Address())
	return write("kudos.yaml", text+fmt.Sprintf("mysql: {%s, %s: %s}\n", tls, setting, write("dsn", dsn)))
}

func (s *secured) clientAs(user string) *kgo.Client {
	cfg, err := config.Load(config.Sources{File: s.settings[user]})
	require.NoError(s.t, err)
	// Users without any write permission cannot even get an idempotent producer id.
	cl, err := cfg.Kafka.NewClient(s.log, kgo.DisableIdempotentWrite())
	require.NoError(s.t, err)
	s.t.Cleanup(cl.Close)
	return cl
}

// as runs a command as a user; it must succeed.
func (s *secured) as(user string, args ...string) string {
	said := s.command(append(args, "--config", s.settings[user])...)
	require.NotContains(s.t, said, secret)
	return said
}

func (s *secured) start(role string, args ...string) {
	if s.roles[role] == nil {
		s.roles[role] = s.process(role, s.t.TempDir(), append([]string{role, "--config", s.settings[role]}, args...)...)
	}
	s.roles[role].start().waitReady()
}

func (s *secured) startAll() {
	s.api = stack.ReserveForTest(s.t)
	reads := stack.ReserveForTest(s.t)
	s.start("producer", "--set", "producer.http_addr="+s.api)
	s.start("processor", "--set", "processor.session_timeout=2s", "--set", "processor.park_interval=3s")
	s.start("ranker", "--set", "ranker.session_timeout=2s", "--set", "ranker.idle_after=1s",
		"--set", "ranker.milestones=2",
		"--set", "ranker.allowed_lateness=0s", "--set", "ranker.emit_interval=50ms")
	s.start("reader", "--set", "reader.http_addr="+reads, "--set", "reader.history=24h",
		"--set", "reader.replicas=1", "--set", "reader.advertised_url=http://"+reads)
	s.start("archive", "--set", "archive.dir="+s.t.TempDir(), "--set", "archive.rotate_interval=50ms")
	s.createSource()
	s.start("bridge", "--set", "bridge.topic="+sourceTopic, "--set", "bridge.session_timeout=2s")
	s.start("notify", "--set", "notify.url="+deaf(s.t), "--set", "notify.session_timeout=2s",
		"--set", "notify.rankings=global/all", "--set", "notify.give_up_after=1ms",
		"--set", "notify.park_interval=50ms")
	s.reads = &reader{process: s.roles["reader"], base: "http://" + reads}
}

func (s *secured) like(user uint64) {
	for post := uint64(1); post <= 12; post++ {
		putLike(s.t, "http://"+s.api, post, user)
		s.want[post] = count{likes: s.want[post].likes + 1}
	}
}

// counted waits until MySQL and the reader have the expected counts.
func (s *secured) counted() { s.waitCounts(s.want); s.reads.waitCounts(s.want) }

// ranked waits for rankings in Kafka, read as the user who may only view them, and in MySQL.
func (s *secured) ranked() {
	waitFor(s.t, time.Minute, "rankings in Kafka", func() bool {
		return s.run("trending", "--window", "all", "--config", s.settings["trending"]).code == 0
	})
	waitFor(s.t, time.Minute, "rankings in MySQL", func() bool {
		return queryRow[int](s.t, s.db, "SELECT COUNT(*) FROM leaderboard") > 0
	})
}

// TestRolesWithTheACLsOfTheDocs: with exactly the ACLs and grants of docs/security.md, on servers that authenticate
// clients, every role and command works, no user may do what only others may, and each of those ACLs is necessary.
func TestRolesWithTheACLsOfTheDocs(t *testing.T) {
	s := newSecured(t)
	s.startAll()
	for user := range uint64(3) {
		s.like(1 + user)
	}
	s.counted()
	s.ranked()
	get[any](t, "%s/v1/analytics/likes", s.reads.base)

	s.commands()
	s.requireDescribed()
	s.transactions()
	s.rebuildAll()
	s.refusals()
	s.park()
	s.as("repartition", "topics", "repartition", "--yes", "--set", fmt.Sprintf("topics.partitions=%d", partitions+2))
	s.like(10)
	s.counted()
	s.leastPermissions(permissionsOfTheDocs(t))
	for role, p := range s.roles {
		require.NotContains(t, p.logged(), secret, "the log of the %s", role)
	}
}

// commands runs the commands that may run concurrently with the roles, each as its user.
func (s *secured) commands() {
	require.Contains(s.t, s.as("topics", "topics", "check"),
		"warning: broker 0: add.partitions.to.txn.retry.backoff.ms is 20, better 1")
	s.as("audit", "audit", "--deep")
	health := get[struct{ Audit struct{ Deep bool } }](s.t, "%s/v1/health", s.reads.base)
	require.True(s.t, health.Audit.Deep, "the reader must see the last audit")
	s.as("exclude", "ranker", "exclude", "7", "--reason", "a test")
	require.Contains(s.t, s.as("exclude", "ranker", "exclusions"), "7")
	s.as("exclude", "ranker", "include", "7")
	file := filepath.Join(s.t.TempDir(), "likes.csv")
	require.NoError(s.t, os.WriteFile(file, []byte("post_id,user_id,action,region\n1000,50,LIKE,DE\n"), 0o600))
	s.as("import", "import", file)
	s.want[1000] = count{likes: 1}
	s.counted()
	bots := filepath.Join(s.t.TempDir(), "bots")
	require.NoError(s.t, os.WriteFile(bots, []byte("# bots\n1\n50\n"), 0o600))
	require.Contains(s.t, s.as("void", "void", "users", bots), "2 users: their reactions do not count")
	require.Contains(s.t, s.as("void", "void", "list"), "1\n50\n")
	s.as("void", "unvoid", "users", bots)
	s.unusual()
	s.as("forget", "forget", "user", "1000", "--yes") // who has no likes
	s.as("forget", "forget", "user", "1", "--yes")
	for post := range s.want {
		if post != 1000 {
			s.want[post] = count{likes: s.want[post].likes - 1}
		}
	}
	waitFor(s.t, time.Minute, "a webhook's dead letters", func() bool {
		return s.written(s.t.Context(), schema.TopicNotifyDLT) > 0
	})
	s.change(2000, 50)
	s.want[2000] = count{likes: 1}
	s.counted()
	s.as("rebuild", "rebuild", "--yes")
	s.counted()
	s.as("processor", "config")
	require.Contains(s.t, s.as("reader", "where", "42", "DE/1h"), s.database.Address()+"/kudos")
}

// transactions aborts an open transaction by its id, and a hanging one by its markers.
func (s *secured) transactions() {
	cl := s.client(kgo.TransactionalID("upstream"))
	require.NoError(s.t, cl.BeginTransaction())
	poison := &kgo.Record{Topic: schema.TopicLikes, Value: []byte("not an event")}
	require.NoError(s.t, cl.ProduceSync(s.t.Context(), poison).FirstErr())
	s.hang()
	for range 2 {
		var open []struct {
			ID string `json:"producer_id"`
		}
		s.report(&open, 0, "transactions", "--output", "json", "--config", s.settings["transactions"])
		for _, o := range open {
			s.run("transactions", "--abort", o.ID, "--yes", "--max-timeout=1ms", "--config", s.settings["transactions"])
		}
	}
	waitFor(s.t, time.Minute, "no transaction", func() bool {
		return s.as("transactions", "transactions") == "no transaction is open\n"
	})
	s.counted()
}

// rebuildAll deletes the state table, then like-updates, and runs the rebuild commands that require stopped roles.
func (s *secured) rebuildAll() {
	s.roles["processor"].stop()
	s.roles["ranker"].stop()
	s.deleteTopic(schema.TopicState)
	s.fails([]string{"topics", "apply", "--config", s.settings["topics"]}, "the state table was lost")
	s.as("rebuild", "rebuild", "--from-events", "--yes")
	s.deleteTopic(schema.TopicUpdates)
	s.as("topics", "topics", "apply")
	s.as("rebuild", "rebuild", "--accept-loss", "--yes")
	s.as("rebuild", "rebuild", "--updates", "--yes")
	s.as("reset", "ranker", "reset", "--yes")
	s.as("topics", "topics", "apply")
	s.start("processor")
	s.start("ranker")
	s.like(8)
	s.counted()
	s.ranked()
}

// refusals: a user may not do what only another one may, and a wrong password gives a clear error.
func (s *secured) refusals() {
	like := record(likeNow(1, 99))
	like.Topic = schema.TopicLikes
	err := s.clientAs("reader").ProduceSync(s.t.Context(), like).FirstErr()
	require.ErrorIs(s.t, err, kerr.TopicAuthorizationFailed, "a reader must not write")
	err = kafka.ReadLog(s.t.Context(), s.clientAs("producer"), schema.TopicLikes, 0, 0,
		func(kafka.LogChunk) (bool, error) { return false, nil })
	require.ErrorIs(s.t, err, kerr.TopicAuthorizationFailed, "a producer must not read")
	s.fails([]string{"topics", "check", "--config", s.settings["reader"]}, "TOPIC_AUTHORIZATION_FAILED")

	out := s.exits(1, "topics", "check", "--config", s.settingsOf("topics", "wrong"+secret))
	require.Contains(s.t, out.stderr, "SASL_AUTHENTICATION_FAILED")
	require.NotContains(s.t, out.stdout+out.stderr, secret)
}

// park withdraws a permission: the partitions park with that reason, and resume when it is granted again.
func (s *secured) park() {
	write := permission{"processor", kadm.OpWrite, "topic", schema.TopicUpdates, false}
	s.withdraw(write)
	s.like(9)
	processor, cause := s.roles["processor"], map[string]string{"cause": string(stream.CausePermission)}
	waitFor(s.t, time.Minute, "the partitions to park with this cause", func() bool {
		return processor.sum("kudos_parked_partitions", cause) > 0
	})
	// Wait, because a rebalance may reopen them meanwhile.
	waitSaid(s.t, time.Minute, "/readyz to report it", func() (bool, any) {
		ready, text := processor.said("readyz")
		return !ready && strings.Contains(text, "TOPIC_AUTHORIZATION_FAILED") &&
			strings.Contains(text, "docs/security.md"), text
	})
	s.grant(write)
	s.counted()
}
