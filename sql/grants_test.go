package sql

import (
	"regexp"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// granted is a database with the users from the docs. Servers are shared, so the user names get the test's suffix.
type granted struct {
	database
	end string
}

var docUser = regexp.MustCompile(`'(kudos_\w+)'@'%'`)

// run executes statements from the docs on this database, without REQUIRE SSL: the test servers have no certificates.
func (g granted) run(t testing.TB, statements string) {
	t.Helper()
	raw := g.raw(t)
	for statement := range strings.SplitSeq(statements, ";") {
		statement = strings.TrimSpace(statement)
		user := docUser.FindStringSubmatch(statement)
		require.NotNil(t, user, statement)
		mine := "'" + user[1] + g.end + "'@'%'"
		statement = docUser.ReplaceAllLiteralString(statement, mine)
		statement = strings.NewReplacer("'…'", "'secret'", " REQUIRE SSL", "", "ON kudos.",
			"ON "+g.name(t)+".").Replace(statement)
		raw.MustExec(statement)
		if strings.HasPrefix(statement, "CREATE USER") {
			t.Cleanup(func() { raw.MustExec("DROP USER " + mine) })
		}
	}
}

func (d database) name(t testing.TB) string { t.Helper(); return d.scalar(t, "SELECT DATABASE()") }

func (g granted) as(t testing.TB, user string) database {
	t.Helper()
	return g.with(t, func(c *mysql.Config) { c.User, c.Passwd = "kudos_"+user+g.end, "secret" })
}

// TestGrantsOfTheDocs runs what roles and commands do, with the grants that the docs give them. Users of the roles must
// not be able to create or drop tables, or to touch tables of other roles.
func TestGrantsOfTheDocs(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		g := granted{db, db.name(t)[len("kudos_test"):]}
		grants := queriesOf(t, "../docs/security.md")
		require.Len(t, grants, 2, "the grants for kudos migrate, and those for the roles")
		g.run(t, grants[0])
		g.as(t, "migrate").migrated(t)
		g.run(t, grants[1])

		t.Run("processor", g.processor)
		t.Run("ranker", g.ranker)
		t.Run("reader", g.reader)
		t.Run("audit", g.audit)
		t.Run("rebuild", g.rebuild)
		t.Run("processor after a rebuild", g.processorAgain)
	})
}

func (g granted) processor(t *testing.T) {
	d := g.as(t, "processor")
	s := d.store(t)
	for partition := range likesTopic().Partitions {
		requireAt(t, start, (*Store).Position, s, likesTopic(), partition)
	}
	hours := []HourDelta{{hourOf(2), "DE", 1, 0}}
	require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, hours))
	require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(1, 1), at(2, 2), oneLike, hours))
	requireAt(t, at(2, 2), (*Store).PeekPosition, s, likesTopic(), 0)
	d.refused(t, "CREATE TABLE more (id INT)", "ALTER TABLE like_count ADD COLUMN more INT", "DROP TABLE like_count",
		"TRUNCATE TABLE like_count", "SELECT * FROM trending", "DELETE FROM like_count")
}

func (g granted) ranker(t *testing.T) {
	d := g.as(t, "ranker")
	s := d.store(t)
	requireAt(t, start, (*Store).RankingPosition, s, rankingsTopic(), 0)
	for i, posts := range []int{3, 2} { // the second ranking is shorter, which deletes a row
		replace(t, s, rankingsTopic(), 0, offset(int64(i)), offset(int64(i+1)),
			ranked("DE", "1h", posts, 42), ranked("DE", "day", posts, 42))
	}
	d.refused(t, "CREATE TABLE more (id INT)", "DROP TABLE trending", "SELECT * FROM like_count",
		"UPDATE like_count SET `count` = 1")
}

func (g granted) reader(t *testing.T) {
	d := g.as(t, "reader")
	for _, region := range []schema.Region{regionNamed(t, "DE"), schema.Global} {
		_, err := d.store(t).LikesByHour(t.Context(), region, timeOf(0), timeOf(24))
		require.NoError(t, err)
	}
	d.refused(t, "CREATE TABLE more (id INT)", "DELETE FROM like_hourly", "SELECT * FROM like_count")
}

func (g granted) audit(t *testing.T) {
	d := g.as(t, "audit")
	posts, hours := 0, 0
	require.NoError(t, d.store(t).Snapshot(t.Context(), func(v *Snapshot) error {
		if _, err := v.Positions(t.Context()); err != nil {
			return err
		}
		if err := v.EachCount(t.Context(), func(PostCount) error { posts++; return nil }); err != nil {
			return err
		}
		return v.EachHour(t.Context(), func(HourCount) error { hours++; return nil })
	}))
	require.Equal(t, []int{1, 1}, []int{posts, hours})
	d.refused(t, "UPDATE like_count SET `count` = 1", "SELECT * FROM trending")
}

func (g granted) rebuild(t *testing.T) {
	d := g.as(t, "migrate")
	require.NoError(t, d.store(t).CheckSchema(t.Context()))
	h, err := NewShadow(t.Context(), d.options, discardLog())
	require.NoError(t, err)
	require.NoError(t, h.AddCounts(t.Context(), oneLike))
	positions := make([]Position, likesTopic().Partitions)
	positions[0] = at(5, 5)
	require.NoError(t, h.SetPositions(t.Context(), likesTopic(), positions))
	require.NoError(t, h.Swap(t.Context(), false))
	require.NoError(t, h.Close())
}

// processorAgain checks that the grants apply after a rebuild: they refer to table names, which rebuilt tables keep.
func (g granted) processorAgain(t *testing.T) {
	d := g.as(t, "processor")
	require.NoError(t, d.store(t).Apply(t.Context(), likesTopic(), 0, at(5, 5), at(6, 6), oneLike, nil))
	d.refused(t, "SELECT * FROM like_count_before_rebuild")
}

func (d database) refused(t testing.TB, statements ...string) {
	t.Helper()
	raw := d.raw(t)
	for _, statement := range statements {
		_, err := raw.Exec(statement)
		var answer *mysql.MySQLError
		require.ErrorAs(t, err, &answer, statement)
		require.Contains(t, []uint16{1044, 1142, 1143, 1227}, answer.Number, "%s: %v", statement, err)
	}
}
