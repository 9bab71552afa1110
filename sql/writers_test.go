package sql

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
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
	stack.Require(t, stack.NeedMariaDB, stack.NeedGalera)
	group, state := stack.ReserveForTest(t), stack.ReserveForTest(t)
	node, err := stack.StartMariaDB(t.Context(), stack.DatabaseOptions{Log: testkit.Log(), ExtraArgs: []string{
		"--wsrep-on=ON", "--wsrep-provider=" + stack.GaleraProvider, "--wsrep-new-cluster",
		"--wsrep-cluster-address=gcomm://", "--wsrep-node-address=127.0.0.1", "--innodb-autoinc-lock-mode=2",
		fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://%s;ist.recv_addr=%s", group, state)}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	require.NoError(t, node.CreateDatabase(t.Context(), "kudos"))
	db := database{options: testOptions(node.DSN("kudos")), real: true}.migrated(t)

	_, err = db.store(t).Position(t.Context(), likesTopic(), 0)
	require.ErrorAs(t, err, new(*WritersError))
	require.ErrorContains(t, err, "it is part of a Galera cluster (wsrep_on)")
	cause, action := err.(*failure).Classify()
	require.Equal(t, []string{"mysql", writersAction}, []string{cause, action})

	db.options.SingleWriter = true
	_, err = db.store(t).Position(t.Context(), likesTopic(), 0)
	require.NoError(t, err)
}
