package deploy

import (
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKubernetesServicesReachTheirPods: the labels and ports in services, budgets and StatefulSets exist.
func TestKubernetesServicesReachTheirPods(t *testing.T) {
	for _, directory := range overlays {
		all := workloads(t, directory)
		pods := func(selector map[string]string) []workload {
			return slices.DeleteFunc(slices.Clone(all), func(w workload) bool {
				return !selects(selector, w.Template.Metadata.Labels)
			})
		}
		headless := map[string]bool{}
		for _, o := range ofKind(t, directory, "Service") {
			s := specOf[struct {
				ClusterIP string
				Selector  map[string]string
				Ports     []struct{ TargetPort string }
			}](t, o)
			headless[o.Metadata.Name] = s.ClusterIP == "None"
			require.Len(t, pods(s.Selector), 1, o.Metadata.Name)
			for _, p := range s.Ports {
				require.NotZero(t, pods(s.Selector)[0].Template.Spec.Containers[0].port(p.TargetPort), "%s: port %s",
					o.Metadata.Name, p.TargetPort)
			}
		}
		for _, o := range ofKind(t, directory, "PodDisruptionBudget") {
			s := specOf[struct {
				Selector struct{ MatchLabels map[string]string }
			}](t, o)
			require.Len(t, pods(s.Selector.MatchLabels), 1, o.Metadata.Name)
		}
		for _, w := range kudosWorkloads(t, directory) {
			if w.Kind == "StatefulSet" {
				require.True(t, headless[w.ServiceName], "%s: service %s", w.Metadata.Name, w.ServiceName)
			}
		}
	}
}

// networkPolicy has the fields of a NetworkPolicy's spec that these tests check.
type networkPolicy struct {
	PodSelector struct {
		MatchLabels      map[string]string
		MatchExpressions []struct {
			Key, Operator string
			Values        []string
		}
	}
	Ingress, Egress []networkRule
}

type networkRule struct {
	From, To []struct {
		NamespaceSelector, PodSelector struct{ MatchLabels map[string]string }
	}
	Ports []struct{ Port any }
}

// TestKubernetesKeepsTheAdminPortPrivate: the admin port exposes everything without authentication.
func TestKubernetesKeepsTheAdminPortPrivate(t *testing.T) {
	for _, directory := range overlays {
		admin := 0
		for _, o := range ofKind(t, directory, "NetworkPolicy") {
			s := specOf[networkPolicy](t, o)
			require.Equal(t, "kudos", s.PodSelector.MatchLabels["app.kubernetes.io/name"], o.Metadata.Name)
			for _, rule := range s.Ingress {
				require.Len(t, rule.Ports, 1, "%s: all ports are open", o.Metadata.Name)
				require.Len(t, rule.From, 1, "%s: open to all", o.Metadata.Name)
				from := rule.From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
				if o.Metadata.Name == "kudos-peers" {
					require.Equal(t, s.PodSelector.MatchLabels, rule.From[0].PodSelector.MatchLabels)
					continue
				}
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

// TestKubernetesLetsThroughWhatIsNeeded: HTTP servers can be reached, and pods can reach Kafka and, if needed, MySQL.
func TestKubernetesLetsThroughWhatIsNeeded(t *testing.T) {
	for _, directory := range overlays {
		for _, w := range kudosWorkloads(t, directory) {
			t.Run(directory+"/"+w.Metadata.Name, func(t *testing.T) {
				in, out := letThrough(t, directory, w)
				require.Equal(t, w.Template.Spec.Containers[0].port("http") != 0, slices.Contains(in, "http"))
				_, cfg := asInPod(t, directory, w.Template.Spec)
				want := []string{"53"}
				if cfg.MySQL.OfMigrations().DSN != "" {
					want = append(want, "3306")
				}
				if peers := cfg.Reader.AdvertisedURL; w.Metadata.Name == "kudos-reader" {
					require.Equal(t, fmt.Sprintf("http://kudos-reader-0.%s:%d", w.ServiceName,
						w.Template.Spec.Containers[0].port("http")), peers)
					want = append(want, "http")
				}
				if w.Metadata.Name == "kudos-notify" {
					want = append(want, "443")
				}
				for _, broker := range cfg.Kafka.Brokers {
					_, port, err := net.SplitHostPort(broker)
					require.NoError(t, err)
					want = append(want, port)
				}
				require.Subset(t, out, want)
			})
		}
	}
}

// letThrough returns the ports that network policies open to and for a workload's pods.
func letThrough(t *testing.T, directory string, w workload) (in, out []string) {
	opened := func(rules []networkRule) (ports []string) {
		for _, r := range rules {
			for _, p := range r.Ports {
				ports = append(ports, fmt.Sprint(p.Port))
			}
		}
		return ports
	}
	for _, o := range ofKind(t, directory, "NetworkPolicy") {
		s, labels := specOf[networkPolicy](t, o), w.Template.Metadata.Labels
		applies := selects(s.PodSelector.MatchLabels, labels)
		for _, e := range s.PodSelector.MatchExpressions {
			require.Equal(t, "In", e.Operator)
			applies = applies && slices.Contains(e.Values, labels[e.Key])
		}
		if applies {
			in, out = append(in, opened(s.Ingress)...), append(out, opened(s.Egress)...)
		}
	}
	return in, out
}
