package sql

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
	"kudos/integration/tier"
)

func TestClusterOf(t *testing.T) {
	const provider = "/USR/LIB/GALERA/LIBGALERA_SMM.SO"
	for _, tt := range []struct {
		want                            string
		on, provider, singlePrimaryMode string
	}{
		{want: ""}, // MySQL without the plugin
		{want: "", on: "OFF", provider: "NONE"},
		{want: "", on: "ON", provider: "NONE"},
		{want: "", on: "ON"},
		{want: "", on: "OFF", provider: provider},
		{want: "a Galera cluster (wsrep_on)", on: "ON", provider: provider},
		{want: "", singlePrimaryMode: "ON"},
		{want: "a multi-primary replication group", singlePrimaryMode: "OFF"},
	} {
		require.Equal(t, tt.want, clusterOf(map[string]string{"wsrep_on": tt.on, "wsrep_provider": tt.provider,
			"group_replication_single_primary_mode": tt.singlePrimaryMode}), "%+v", tt)
	}
}

// A node of a Galera cluster is not written to, unless the operator says that no other is.
func TestGaleraIsNotWrittenTo(t *testing.T) {
	tier.Verify(t)
	node := stack.GaleraForTest(t, 1)[0]
	require.NoError(t, node.CreateDatabase(t.Context(), "kudos"))
	db := database{options: testOptions(node.DSN("kudos")), real: true}.migrated(t)

	_, err := db.store(t).Position(t.Context(), likesTopic(), 0)
	require.ErrorAs(t, err, new(*WritersError))
	require.ErrorContains(t, err, "it is part of a Galera cluster (wsrep_on)")
	cause, action := err.(*failure).Classify()
	require.Equal(t, []string{"mysql", writersAction}, []string{cause, action})

	db.options.SingleWriter = true
	_, err = db.store(t).Position(t.Context(), likesTopic(), 0)
	require.NoError(t, err)
}
