package main

import (
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"kudos/config"
	"kudos/schema"
)

// TestKubernetesFitsTheProgram holds what is shipped for Kubernetes against the commands and settings there are: no
// cluster runs in the tests.
func TestKubernetesFitsTheProgram(t *testing.T) {
	for _, folder := range []string{devFolder, productionFolder} {
		for _, w := range kudosWorkloads(t, folder) {
			t.Run(path.Base(folder)+"/"+w.Metadata.Name, func(t *testing.T) {
				require.Len(t, w.Template.Spec.Containers, 1)
				cmd, cfg := asInPod(t, folder, w.Template.Spec)
				checkRights(t, w.Template.Spec)
				if cmd.GroupID == "roles" {
					checkProbes(t, cmd, cfg, w.Template.Spec)
					checkGracePeriod(t, cmd, cfg, w.Template.Spec)
					checkState(t, cmd, cfg, w)
				}
				if cmd.Name() != "producer" && cmd.Name() != "apply" {
					require.NoError(t, cfg.RequireMySQL())
				}
			})
		}
	}
}

// asInPod finds the command that the pod runs, and loads its configuration as it would there.
func asInPod(t *testing.T, folder string, p pod) (*cobra.Command, *config.Loaded) {
	t.Helper()
	c := p.Containers[0]
	cmd, flags, err := (&app{}).rootCommand().Find(c.Args)
	require.NoError(t, err)
	require.True(t, cmd.Runnable() && cmd.HasParent(), "%v is no command", c.Args)
	require.NoError(t, cmd.ParseFlags(flags))
	require.Empty(t, cmd.Flags().Args(), "%v is no command", c.Args)
	file, err := cmd.Flags().GetString("config")
	require.NoError(t, err)
	for name, value := range imageSettings(t) {
		t.Setenv(name, value)
	}
	for _, e := range c.Env {
		if !strings.HasPrefix(e.Name, "KUDOS_") {
			continue
		}
		if e.ValueFrom != nil {
			e.Value = "kudos:secret@tcp(mysql:3306)/kudos"
		}
		t.Setenv(e.Name, e.Value)
	}
	settings := filepath.Join(t.TempDir(), "kudos.yaml")
	require.NoError(t, os.WriteFile(settings, []byte(mounted(t, folder, p, file)), 0o600))
	cfg, err := config.Load(config.Sources{File: settings})
	require.NoError(t, err)
	return cmd, cfg
}

// mounted is what a pod finds in a file.
func mounted(t *testing.T, folder string, p pod, file string) string {
	t.Helper()
	for _, mount := range p.Containers[0].VolumeMounts {
		for _, v := range p.Volumes {
			if mount.MountPath != path.Dir(file) || v.Name != mount.Name || v.ConfigMap == nil {
				continue
			}
			for _, o := range ofKind(t, folder, "ConfigMap") {
				if o.Metadata.Name == v.ConfigMap.Name {
					require.Contains(t, o.Data, path.Base(file))
					require.Equal(t, "setup", o.Metadata.Labels["app.kubernetes.io/component"], "it is to be there for the jobs")
					return o.Data[path.Base(file)]
				}
			}
		}
	}
	require.Fail(t, "nothing is mounted there", file)
	return ""
}

// checkRights: what Kubernetes' restricted standard wants, and more.
func checkRights(t *testing.T, p pod) {
	t.Helper()
	no := false
	require.NotEmpty(t, p.ServiceAccountName)
	require.Equal(t, &no, p.AutomountServiceAccountToken)
	require.Equal(t, &no, p.EnableServiceLinks)
	require.True(t, p.SecurityContext.RunAsNonRoot)
	require.Equal(t, "RuntimeDefault", p.SecurityContext.SeccompProfile.Type)
	dockerfile, err := os.ReadFile("deploy/Dockerfile")
	require.NoError(t, err)
	require.Contains(t, string(dockerfile), "USER "+strconv.Itoa(p.SecurityContext.RunAsUser)+":")
	c := p.Containers[0]
	require.Equal(t, &no, c.SecurityContext.AllowPrivilegeEscalation)
	require.True(t, c.SecurityContext.ReadOnlyRootFilesystem)
	require.Equal(t, []string{"ALL"}, c.SecurityContext.Capabilities.Drop)
	require.Empty(t, c.SecurityContext.Capabilities.Add)
	require.Contains(t, c.Resources.Requests, "cpu")
	require.Contains(t, c.Resources.Limits, "memory")
	require.NotContains(t, c.Resources.Limits, "cpu", "it would stand still in the middle of a transaction")
}

// checkProbes: the ports are those that the settings say, open to the pod's address, and the probes ask there.
func checkProbes(t *testing.T, cmd *cobra.Command, cfg *config.Loaded, p pod) {
	t.Helper()
	c := p.Containers[0]
	listens := func(name, addr string) {
		t.Helper()
		host, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		require.Empty(t, host, "%s must be reached from outside of the pod", name)
		require.Equal(t, port, strconv.Itoa(c.port(name)), name)
	}
	listens("admin", cfg.Admin.Addr)
	switch cmd.Name() {
	case "producer":
		listens("http", cfg.Producer.HTTPAddr)
	case "reader":
		listens("http", cfg.Reader.HTTPAddr)
	default:
		require.Zero(t, c.port("http"))
	}
	require.NotNil(t, c.LivenessProbe)
	require.Equal(t, "/livez", c.LivenessProbe.HTTPGet.Path)
	require.Equal(t, "admin", c.LivenessProbe.HTTPGet.Port)
	require.NotNil(t, c.ReadinessProbe)
	require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
	require.Equal(t, "admin", c.ReadinessProbe.HTTPGet.Port)
}

// checkGracePeriod: what is in hand is finished before the pod is killed, and who is asked over HTTP goes on answering
// until load balancers know.
func checkGracePeriod(t *testing.T, cmd *cobra.Command, cfg *config.Loaded, p pod) {
	t.Helper()
	shutdown := map[string]time.Duration{
		"producer":  cfg.Producer.ShutdownTimeout + cfg.Producer.AckTimeout, // those that were cut off end, too
		"processor": cfg.Processor.ShutdownTimeout,
		"ranker":    cfg.Ranker.ShutdownTimeout,
		"reader":    cfg.Reader.ShutdownTimeout,
	}[cmd.Name()]
	require.NotZero(t, shutdown, "no such role: %s", cmd.Name())
	preStop := time.Duration(p.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
	if p.Containers[0].port("http") != 0 {
		require.NotZero(t, preStop)
	}
	grace := time.Duration(p.TerminationGracePeriodSeconds) * time.Second
	require.Greater(t, grace, preStop+shutdown+cfg.Admin.ShutdownTimeout)
}

// checkState: local copies are on a volume of the pod's own.
func checkState(t *testing.T, cmd *cobra.Command, cfg *config.Loaded, w workload) {
	t.Helper()
	dir := map[string]string{"processor": cfg.Processor.StateDir, "ranker": cfg.Ranker.StateDir, "reader": cfg.Reader.StateDir}[cmd.Name()]
	if dir == "" {
		require.Equal(t, "Deployment", w.Kind)
		return
	}
	require.Equal(t, "StatefulSet", w.Kind)
	require.Len(t, w.VolumeClaimTemplates, 1)
	for _, mount := range w.Template.Spec.Containers[0].VolumeMounts {
		if mount.Name == w.VolumeClaimTemplates[0].Metadata.Name {
			require.Equal(t, mount.MountPath, path.Dir(dir))
			return
		}
	}
	require.Fail(t, "the volume is not mounted")
}

// TestKubernetesServicesReachTheirPods: services, budgets and StatefulSets name labels and ports that there are.
func TestKubernetesServicesReachTheirPods(t *testing.T) {
	for _, folder := range []string{devFolder, productionFolder} {
		all := workloads(t, folder)
		pods := func(selector map[string]string) (found []workload) {
			for _, w := range all {
				if selects(selector, w.Template.Metadata.Labels) {
					found = append(found, w)
				}
			}
			return found
		}
		headless := map[string]bool{}
		for _, o := range ofKind(t, folder, "Service") {
			s := specOf[struct {
				ClusterIP string
				Selector  map[string]string
				Ports     []struct{ TargetPort string }
			}](t, o)
			headless[o.Metadata.Name] = s.ClusterIP == "None"
			require.Len(t, pods(s.Selector), 1, o.Metadata.Name)
			for _, p := range s.Ports {
				require.NotZero(t, pods(s.Selector)[0].Template.Spec.Containers[0].port(p.TargetPort), "%s: port %s", o.Metadata.Name, p.TargetPort)
			}
		}
		for _, o := range ofKind(t, folder, "PodDisruptionBudget") {
			s := specOf[struct {
				Selector struct{ MatchLabels map[string]string }
			}](t, o)
			require.Len(t, pods(s.Selector.MatchLabels), 1, o.Metadata.Name)
		}
		for _, w := range kudosWorkloads(t, folder) {
			if w.Kind == "StatefulSet" {
				require.True(t, headless[w.ServiceName], "%s: service %s", w.Metadata.Name, w.ServiceName)
			}
		}
	}
}

// TestKubernetesKeepsTheAdminPortPrivate: who reaches it can read everything, and is asked nothing.
func TestKubernetesKeepsTheAdminPortPrivate(t *testing.T) {
	for _, folder := range []string{devFolder, productionFolder} {
		admin := 0
		for _, o := range ofKind(t, folder, "NetworkPolicy") {
			s := specOf[struct {
				PodSelector struct{ MatchLabels map[string]string }
				Ingress     []struct {
					From []struct {
						NamespaceSelector struct{ MatchLabels map[string]string }
					}
					Ports []struct{ Port string }
				}
			}](t, o)
			require.Equal(t, "kudos", s.PodSelector.MatchLabels["app.kubernetes.io/name"], o.Metadata.Name)
			for _, rule := range s.Ingress {
				require.Len(t, rule.Ports, 1, "%s: all ports are open", o.Metadata.Name)
				require.Len(t, rule.From, 1, "%s: open to all", o.Metadata.Name)
				from := rule.From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
				require.NotEmpty(t, from, o.Metadata.Name)
				if rule.Ports[0].Port != "http" {
					admin++
					require.Equal(t, "admin", rule.Ports[0].Port)
					require.Equal(t, "monitoring", from)
				}
			}
		}
		require.Equal(t, 1, admin)
	}
}

// TestKubernetesScalesUpToThePartitions: a processor more would have nothing to do; and where a number is the
// autoscaler's, none is set.
func TestKubernetesScalesUpToThePartitions(t *testing.T) {
	byName := map[string]workload{}
	for _, w := range kudosWorkloads(t, productionFolder) {
		byName[w.Kind+" "+w.Metadata.Name] = w
	}
	for _, o := range ofKind(t, productionFolder, "HorizontalPodAutoscaler") {
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
		require.Nil(t, w.Replicas, "%s: each apply would undo what the autoscaler did", w.Metadata.Name)
		if w.Metadata.Name != "kudos-processor" {
			continue
		}
		_, cfg := asInPod(t, productionFolder, w.Template.Spec)
		require.Equal(t, int(cfg.Topics.Partitions), s.MaxReplicas)
		require.Equal(t, "kafka_consumergroup_lag", s.Metrics[0].External.Metric.Name)
		require.Equal(t, map[string]string{"consumergroup": schema.GroupFold}, s.Metrics[0].External.Metric.Selector.MatchLabels)
	}
}

// TestProductionHoldsNoSecret: they are named, and made elsewhere.
func TestProductionHoldsNoSecret(t *testing.T) {
	for _, o := range objectsOf(t, productionFolder) {
		require.NotEqual(t, "Secret", o.Kind, o.Metadata.Name)
		for _, text := range o.Data {
			require.NotContains(t, text, "dsn")
		}
	}
	keys := map[string]string{}
	for _, w := range kudosWorkloads(t, productionFolder) {
		for _, e := range w.Template.Spec.Containers[0].Env {
			if e.ValueFrom != nil {
				require.NotNil(t, e.ValueFrom.SecretKeyRef)
				require.Equal(t, "kudos-mysql", e.ValueFrom.SecretKeyRef.Name)
				require.NotContains(t, keys, e.ValueFrom.SecretKeyRef.Key, "each has a user of its own")
				keys[e.ValueFrom.SecretKeyRef.Key] = w.Metadata.Name
			}
		}
	}
	require.Equal(t, map[string]string{"migrate": "kudos-migrate", "processor": "kudos-processor", "ranker": "kudos-ranker", "reader": "kudos-reader"}, keys)
}
