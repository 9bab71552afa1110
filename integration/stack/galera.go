package stack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// galeraProvider is the library that makes a MariaDB server a node of a Galera cluster, where Debian has it.
const galeraProvider = "/usr/lib/galera/libgalera_smm.so"

// missingGalera reports what a node lacks in addition to MariaDB: the provider, and what copies another node's data.
func missingGalera() error {
	_, err := os.Stat(galeraProvider)
	if err == nil {
		_, err = exec.LookPath("rsync")
	}
	if err == nil && !slices.ContainsFunc(filepath.SplitList(galeraPath()), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "wsrep_sst_rsync"))
		return err == nil
	}) {
		err = errors.New("no wsrep_sst_rsync")
	}
	if err != nil {
		return fmt.Errorf("galera is missing (%w): %s", err, installHint)
	}
	return nil
}

// galeraPath is the PATH of a node, with the scripts that deps.sh unpacks into the cache.
func galeraPath() string {
	root, _ := cacheRoot() // without a cache they are not there
	return strings.Join([]string{os.Getenv("PATH"), "/usr/sbin", filepath.Join(root, "wsrep")}, ":")
}

// GaleraForTest starts a Galera cluster of MariaDB servers, and closes it at the end of the test. A node that is killed
// and started again joins the others, with a copy of another node's data.
func GaleraForTest(t testing.TB, nodes int) (cluster []*Database) {
	t.Helper()
	Require(t, NeedMariaDB, NeedGalera)
	var addresses []string
	for range nodes {
		addresses = append(addresses, ReserveForTest(t))
	}
	for _, group := range addresses {
		const first = "--wsrep-new-cluster"
		args := []string{"--wsrep-on=ON", "--wsrep-provider=" + galeraProvider, "--innodb-autoinc-lock-mode=2",
			"--wsrep-cluster-address=gcomm://" + strings.Join(addresses, ","), "--wsrep-node-address=127.0.0.1",
			"--wsrep-sst-method=rsync", "--wsrep-sst-receive-address=" + ReserveForTest(t),
			fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://%s;ist.recv_addr=%s;gcache.size=16M", group,
				ReserveForTest(t))}
		if len(cluster) == 0 {
			args = append(args, first)
		}
		node := MariaDBForTest(t, DatabaseOptions{ExtraArgs: args, Env: []string{"PATH=" + galeraPath()}})
		// The first node, too, joins the others when it starts again.
		node.command.Args = slices.DeleteFunc(node.command.Args, func(arg string) bool { return arg == first })
		cluster = append(cluster, node)
	}
	return cluster
}
