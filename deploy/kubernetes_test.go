package deploy

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"kudos/cli"
	"kudos/config"
	"kudos/dev/testkit/apikit"
	"kudos/httpserver/admin"
	"kudos/integration/testrun"
	"kudos/producer"
	"kudos/schema"
)

// TestKubernetesFitsTheProgram checks the objects against the program's commands and settings: tests run no cluster.
func TestKubernetesFitsTheProgram(t *testing.T) {
	for _, directory := range overlays {
		for _, w := range kudosWorkloads(t, directory) {
			t.Run(directory+"/"+w.Metadata.Name, func(t *testing.T) {
				p := w.Template.Spec
				require.Len(t, p.Containers, 1)
				checkComponent(t, directory, w)
				cmd, cfg := asInPod(t, directory, p)
				checkRights(t, p)
				checkResources(t, cmd, cfg, p.Containers[0])
				if cmd.GroupID == "roles" {
					checkProbes(t, cmd, cfg, p)
					checkGracePeriod(t, cmd, cfg, p)
					checkState(t, cmd, cfg, w)
				}
				if cmd.Name() == "migrate" {
					cfg.MySQL = cfg.MySQL.OfMigrations()
				} else {
					checkCertificates(t, cfg, w)
				}
				switch cmd.Name() {
				case "producer":
					require.NoError(t, cli.CheckAuth(cfg))
				case "migrate", "processor", "ranker", "reader":
					require.NoError(t, cfg.RequireMySQL())
				}
			})
		}
	}
}

// checkComponent: upgrades select one role after another by this label (docs/deploy.md).
func checkComponent(t *testing.T, directory string, w workload) {
	const label = "app.kubernetes.io/component"
	component := w.Template.Metadata.Labels[label]
	require.Equal(t, "kudos-"+component, w.Template.Spec.ServiceAccountName)
	own := []string{w.Metadata.Name, w.Template.Spec.ServiceAccountName, w.ServiceName}
	for _, o := range objectsOf(t, directory) {
		if slices.Contains(own, o.Metadata.Name) {
			require.Equal(t, component, o.Metadata.Labels[label], "%s %s", o.Kind, o.Metadata.Name)
		}
	}
}

// asInPod finds the command that the pod runs, and loads its configuration as in the pod.
func asInPod(t *testing.T, directory string, p pod) (*cobra.Command, *config.Loaded) {
	c := p.Containers[0]
	cmd, flags, err := cli.Root().Find(c.Args)
	require.NoError(t, err)
	require.True(t, cmd.Runnable() && cmd.HasParent(), "%v is not a command", c.Args)
	require.NoError(t, cmd.ParseFlags(flags))
	require.Empty(t, cmd.Flags().Args(), "%v is not a command", c.Args)
	require.Equal(t, 1, cmd.Flags().NFlag(), "settings belong in %s/kudos.yaml", directory)
	file, err := cmd.Flags().GetString("config")
	require.NoError(t, err)
	settings := filepath.Join(t.TempDir(), "kudos.yaml")
	require.NoError(t, os.WriteFile(settings, []byte(mounted(t, directory, p, file)), 0o600))
	for name, value := range imageOf(t).Env {
		t.Setenv(name, value)
	}
	for _, e := range c.Env {
		if !strings.HasPrefix(e.Name, "KUDOS_") {
			continue
		}
		if e.ValueFrom != nil {
			e.Value = "kudos:secret@tcp(mysql:3306)/kudos"
		}
		if e.Name == "KUDOS_NOTIFY_SECRET" {
			e.Value = "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
		}
		t.Setenv(e.Name, strings.ReplaceAll(e.Value, "$(POD_NAME)", "kudos-reader-0"))
	}
	cfg, err := config.Load(config.Sources{File: settings})
	require.NoError(t, err)
	return cmd, cfg
}

// mounted returns the contents of a file in a pod.
func mounted(t *testing.T, directory string, p pod, file string) string {
	for _, m := range p.mounts() {
		if m.MountPath != path.Dir(file) || m.volume.ConfigMap == nil {
			continue
		}
		for _, o := range ofKind(t, directory, "ConfigMap") {
			if o.Metadata.Name == m.volume.ConfigMap.Name {
				require.Contains(t, o.Data, path.Base(file))
				require.Equal(t, "setup", o.Metadata.Labels["app.kubernetes.io/component"], "the setup jobs need it")
				return o.Data[path.Base(file)]
			}
		}
	}
	require.Fail(t, "no ConfigMap is mounted there", file)
	return ""
}

// checkRights checks restrictions beyond the namespaces' Pod Security Standard (see integration/deploycheck).
func checkRights(t *testing.T, p pod) {
	no := false
	require.NotEmpty(t, p.ServiceAccountName)
	require.Equal(t, &no, p.AutomountServiceAccountToken)
	require.Equal(t, &no, p.EnableServiceLinks)
	require.Equal(t, imageOf(t).User, fmt.Sprintf("%d:%d", p.SecurityContext.RunAsUser, p.SecurityContext.RunAsGroup))
	require.Equal(t, p.SecurityContext.RunAsGroup, p.SecurityContext.FSGroup, "the pod could not write to its volume")
	require.True(t, p.Containers[0].SecurityContext.ReadOnlyRootFilesystem)
}

// checkResources: the pod's memory suffices for the program, and its CPU is not limited.
func checkResources(t *testing.T, cmd *cobra.Command, cfg *config.Loaded, c container) {
	require.Contains(t, c.Resources.Requests, "cpu")
	require.NotContains(t, c.Resources.Limits, "cpu", "CPU throttling would stall it in the middle of a transaction")
	limit := inBytes(t, c.Resources.Limits["memory"])
	if cmd.GroupID != "roles" {
		return // a job is retried
	}
	require.Equal(t, limit, inBytes(t, c.Resources.Requests["memory"]), "a node short of memory would kill it first")
	var goes int64 // Go's memory
	for _, e := range c.Env {
		if e.Name == "GOMEMLIMIT" {
			goes = inBytes(t, e.Value)
		}
	}
	caches := map[string]int64{"processor": cfg.Processor.CacheBytes, "ranker": cfg.Ranker.CacheBytes,
		"reader": cfg.Reader.CacheBytes}[cmd.Name()] // part of Go's memory
	buffers := map[string]int64{"processor": cfg.Processor.BufferBytes}[cmd.Name()] // outside of Go's memory
	require.Positive(t, goes, "GOMEMLIMIT")
	require.Greater(t, goes, 2*caches, "GOMEMLIMIT: most of it would be block cache")
	require.Greater(t, limit-goes, buffers+64<<20, "GOMEMLIMIT: too little memory is left outside of Go")
}

func inBytes(t *testing.T, size string) int64 {
	digits := strings.TrimRight(size, "GMKiB")
	n, err := strconv.ParseInt(digits, 10, 64)
	require.NoError(t, err, "%q", size)
	shift, known := map[string]int{"Gi": 30, "GiB": 30, "Mi": 20, "MiB": 20}[size[len(digits):]]
	require.True(t, known, "%q", size)
	return n << shift
}

// checkCertificates: Kafka's TLS files come from Strimzi's Secrets; the client's user is named like the account.
func checkCertificates(t *testing.T, cfg *config.Loaded, w workload) {
	p, found := w.Template.Spec, map[string]string{} // by file, its secret and key
	for _, m := range p.mounts() {
		for _, item := range m.volume.Secret.Items {
			found[path.Join(m.MountPath, item.Path)] = m.volume.Secret.SecretName + " " + item.Key
		}
	}
	want := map[string]string{}
	if cfg.Kafka.TLS {
		want[cfg.Kafka.TLSCA] = "kudos-cluster-ca-cert ca.crt"
		want[cfg.Kafka.TLSCert] = p.ServiceAccountName + " user.crt"
		want[cfg.Kafka.TLSKey] = p.ServiceAccountName + " user.key"
	}
	require.Equal(t, want, found)
}

// checkProbes: ports match the settings, the program listens on the pod's address, and the probes use them.
func checkProbes(t *testing.T, cmd *cobra.Command, cfg *config.Loaded, p pod) {
	c := p.Containers[0]
	listens := func(name, addr string) {
		host, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		require.Empty(t, host, "%s must be reachable from outside of the pod", name)
		require.Equal(t, port, strconv.Itoa(c.port(name)), name)
	}
	listens("admin", cfg.Admin.Addr)
	served := map[string]string{"producer": cfg.Producer.HTTPAddr, "reader": cfg.Reader.HTTPAddr}
	if addr, serves := served[cmd.Name()]; serves {
		listens("http", addr)
	} else {
		require.Zero(t, c.port("http"))
	}
	for _, probe := range []*probe{c.LivenessProbe, c.ReadinessProbe} {
		require.NotNil(t, probe)
		require.Equal(t, "admin", probe.HTTPGet.Port)
	}
	require.Equal(t, "/livez", c.LivenessProbe.HTTPGet.Path,
		"if liveness depended on servers, an unavailable one would restart all pods")
	require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
}

// checkGracePeriod: work in flight finishes before the kill, and servers respond until load balancers have noticed.
func checkGracePeriod(t *testing.T, cmd *cobra.Command, cfg *config.Loaded, p pod) {
	shutdown, known := map[string]time.Duration{
		"producer":  cfg.Producer.ShutdownTimeout + cfg.Producer.AckTimeout, // requests that time out must end too
		"processor": cfg.Processor.ShutdownTimeout,
		"ranker":    cfg.Ranker.ShutdownTimeout,
		"reader":    cfg.Reader.ShutdownTimeout,
		"archive":   0, // it repeats unfinished work
		"bridge":    cfg.Bridge.ShutdownTimeout,
		"notify":    cfg.Notify.ShutdownTimeout,
	}[cmd.Name()]
	require.True(t, known, "no such role: %s", cmd.Name())
	preStop := time.Duration(p.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
	if p.Containers[0].port("http") != 0 {
		require.NotZero(t, preStop)
	}
	grace := time.Duration(p.TerminationGracePeriodSeconds) * time.Second
	require.Greater(t, grace, preStop+shutdown+cfg.Admin.ShutdownTimeout)
}

// checkState: state directories are on the pod's own volume, the only place that it can write to.
func checkState(t *testing.T, cmd *cobra.Command, cfg *config.Loaded, w workload) {
	var writable []string
	for _, mount := range w.Template.Spec.Containers[0].VolumeMounts {
		if !mount.ReadOnly {
			writable = append(writable, mount.Name+" "+mount.MountPath)
		}
	}
	dir := map[string]string{"processor": cfg.Processor.StateDir, "ranker": cfg.Ranker.StateDir,
		"reader": cfg.Reader.StateDir, "archive": cfg.Archive.Dir}[cmd.Name()]
	if dir == "" {
		require.Equal(t, "Deployment", w.Kind)
		require.Empty(t, writable)
		return
	}
	require.Equal(t, "StatefulSet", w.Kind)
	require.Len(t, w.VolumeClaimTemplates, 1)
	require.Equal(t, []string{w.VolumeClaimTemplates[0].Metadata.Name + " " + path.Dir(dir)}, writable)
	retain := "Delete" // a cache that would only become stale
	if cmd.Name() == "archive" {
		retain = "Retain"
		require.LessOrEqual(t, *w.Replicas, 1, "only one process may write to a directory")
	}
	require.Equal(t, retain, w.PersistentVolumeClaimRetentionPolicy.WhenDeleted)
	require.Equal(t, retain, w.PersistentVolumeClaimRetentionPolicy.WhenScaled)
}

// TestAdminServerHasEachDocumentedPath checks the paths of probes and scrapes.
func TestAdminServerHasEachDocumentedPath(t *testing.T) {
	asked := map[string]bool{}
	for _, directory := range overlays {
		for _, w := range kudosWorkloads(t, directory) {
			if w.Kind != "Job" {
				c := w.Template.Spec.Containers[0]
				asked[c.LivenessProbe.HTTPGet.Path], asked[c.ReadinessProbe.HTTPGet.Path] = true, true
			}
		}
	}
	for _, o := range ofKind(t, productionDir, "PodMonitor") {
		monitor := specOf[struct{ PodMetricsEndpoints []struct{ Path, Port string } }](t, o)
		for _, e := range monitor.PodMetricsEndpoints {
			require.Equal(t, "admin", e.Port)
			asked[e.Path] = true
		}
	}
	opts := admin.DefaultOptions()
	opts.Addr = "127.0.0.1:0"
	server := admin.New(opts, admin.NewRegistry(), nil, slog.New(slog.DiscardHandler))
	testrun.Start(t, "the admin server", time.Minute, server.Run)
	<-server.Listening()
	require.Len(t, asked, 3)
	for path := range asked {
		apikit.MustSend(t, nil, http.MethodGet, "http://"+server.Addr()+path, "").Require(http.StatusOK)
	}
}

// TestKubernetesScalesUpToThePartitions: more processors would have nothing to do. If an autoscaler sets the number of
// replicas, the object must not.
func TestKubernetesScalesUpToThePartitions(t *testing.T) {
	byName := map[string]workload{}
	for _, w := range kudosWorkloads(t, productionDir) {
		byName[w.Kind+" "+w.Metadata.Name] = w
	}
	for _, o := range ofKind(t, productionDir, "HorizontalPodAutoscaler") {
		s := specOf[struct {
			ScaleTargetRef struct{ Kind, Name string }
			MaxReplicas    int
			Metrics        []struct {
				External struct {
					Metric struct {
						Name     string
						Selector struct{ MatchLabels map[string]string }
					}
				}
			}
		}](t, o)
		w, exists := byName[s.ScaleTargetRef.Kind+" "+s.ScaleTargetRef.Name]
		require.True(t, exists, "%s scales %+v", o.Metadata.Name, s.ScaleTargetRef)
		require.Nil(t, w.Replicas, "%s: each apply would override the autoscaler", w.Metadata.Name)
		if w.Metadata.Name != "kudos-processor" {
			continue
		}
		_, cfg := asInPod(t, productionDir, w.Template.Spec)
		require.Equal(t, int(cfg.Topics.Partitions), s.MaxReplicas)
		require.Equal(t, "kafka_consumergroup_lag", s.Metrics[0].External.Metric.Name)
		require.Equal(t, map[string]string{"consumergroup": schema.GroupFold},
			s.Metrics[0].External.Metric.Selector.MatchLabels)
	}
}

// TestProductionIsCareful: connections to Kafka and MySQL are encrypted, and clients are authenticated.
func TestProductionIsCareful(t *testing.T) {
	for _, w := range kudosWorkloads(t, productionDir) {
		_, cfg := asInPod(t, productionDir, w.Template.Spec)
		require.True(t, cfg.Kafka.TLS)
		require.True(t, cfg.MySQL.TLS)
		require.NotEqual(t, producer.AuthNone, cfg.Producer.Auth)
	}
}

// TestProductionHoldsNoSecret: Secrets are referenced, and created elsewhere.
func TestProductionHoldsNoSecret(t *testing.T) {
	for _, o := range objectsOf(t, productionDir) {
		require.NotEqual(t, "Secret", o.Kind, o.Metadata.Name)
		for _, text := range o.Data {
			require.NotContains(t, text, "dsn")
		}
	}
	keys := map[secretKey]string{}
	for _, w := range kudosWorkloads(t, productionDir) {
		for _, e := range w.Template.Spec.Containers[0].Env {
			if e.ValueFrom != nil && e.ValueFrom.FieldRef == nil {
				key := e.ValueFrom.SecretKeyRef
				require.NotNil(t, key)
				require.NotContains(t, keys, *key, "each workload needs its own")
				keys[*key] = w.Metadata.Name
			}
		}
	}
	require.Equal(t, map[secretKey]string{{"kudos-mysql", "migrate"}: "kudos-migrate",
		{"kudos-mysql", "processor"}: "kudos-processor", {"kudos-mysql", "ranker"}: "kudos-ranker",
		{"kudos-mysql", "reader"}: "kudos-reader", {"kudos-notify", "secret"}: "kudos-notify"}, keys)
}
