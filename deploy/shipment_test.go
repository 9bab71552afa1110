package deploy

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/integration/deployed"
)

// The deployment files: the image, and the directories for kubectl apply or with values of the chart.
const (
	dockerfilePath = "Dockerfile"
	devDir         = "kubernetes/overlays/dev"
	productionDir  = "kubernetes/overlays/production"
	strimziDir     = "kubernetes/strimzi"
	chartDevDir    = "helm/dev"
	chartDir       = "helm/production"
)

var overlays = []string{devDir, productionDir, chartDevDir, chartDir}

// object has the fields of a Kubernetes object that these tests check.
type object struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Data map[string]string
	Spec json.RawMessage
}

// workload creates pods: a Deployment, StatefulSet or Job.
type workload struct {
	object
	ServiceName                          string
	Replicas                             *int
	VolumeClaimTemplates                 []struct{ Metadata struct{ Name string } }
	PersistentVolumeClaimRetentionPolicy struct{ WhenDeleted, WhenScaled string }
	Template                             struct {
		Metadata struct{ Labels map[string]string }
		Spec     pod
	}
}

type pod struct {
	ServiceAccountName                               string
	AutomountServiceAccountToken, EnableServiceLinks *bool
	TerminationGracePeriodSeconds                    int
	SecurityContext                                  struct{ RunAsUser, RunAsGroup, FSGroup int }
	Containers                                       []container
	Volumes                                          []volume
}

type volume struct {
	Name      string
	ConfigMap *struct{ Name string }
	Secret    struct {
		SecretName string
		Items      []struct{ Key, Path string }
	}
}

type container struct {
	Name, Image string
	Args        []string
	Env         []struct {
		Name, Value string
		ValueFrom   *struct {
			SecretKeyRef *secretKey
			FieldRef     *struct{ FieldPath string }
		}
	}
	Ports []struct {
		Name          string
		ContainerPort int
	}
	LivenessProbe, ReadinessProbe *probe
	Lifecycle                     struct {
		PreStop struct{ Sleep struct{ Seconds int } }
	}
	SecurityContext struct{ ReadOnlyRootFilesystem bool }
	Resources       struct{ Requests, Limits map[string]string }
	VolumeMounts    []mount
}

type secretKey struct{ Name, Key string }

type mount struct {
	Name, MountPath string
	ReadOnly        bool
	volume          volume // set by mounts
}

// mounts returns the mounts of the only container, with their volumes.
func (p pod) mounts() (all []mount) {
	for _, m := range p.Containers[0].VolumeMounts {
		i := slices.IndexFunc(p.Volumes, func(v volume) bool { return v.Name == m.Name })
		if i >= 0 { // a StatefulSet's claim has none
			m.volume = p.Volumes[i]
		}
		all = append(all, m)
	}
	return all
}

type probe struct{ HTTPGet struct{ Path, Port string } }

// port returns the number of a named port, 0 if there is none.
func (c container) port(name string) int {
	for _, p := range c.Ports {
		if p.Name == name {
			return p.ContainerPort
		}
	}
	return 0
}

// image is how the Dockerfile's image is run.
type image struct {
	User, WorkingDir, StopSignal string
	Env                          map[string]string
	Entrypoint                   []string
}

func imageOf(t *testing.T) image { return deployed.Read[image](t, "deploy/"+dockerfilePath)[0] }

func objectsOf(t *testing.T, directory string) []object {
	return deployed.Read[object](t, "deploy/"+directory)
}

// ofKind returns the objects of a kind; there must be at least one.
func ofKind(t *testing.T, directory, kind string) []object {
	found := slices.DeleteFunc(objectsOf(t, directory), func(o object) bool { return o.Kind != kind })
	require.NotEmpty(t, found, "%s has no %s", directory, kind)
	return found
}

func specOf[T any](t *testing.T, o object) (into T) {
	require.NoError(t, json.Unmarshal(o.Spec, &into), "%s %s", o.Kind, o.Metadata.Name)
	return into
}

func workloads(t *testing.T, directory string) []workload {
	var list []workload
	for _, kind := range []string{"Deployment", "StatefulSet", "Job"} {
		for _, o := range ofKind(t, directory, kind) {
			w := specOf[workload](t, o)
			w.object = o
			list = append(list, w)
		}
	}
	return list
}

func kudosWorkloads(t *testing.T, directory string) []workload {
	list := slices.DeleteFunc(workloads(t, directory), func(w workload) bool {
		return w.Template.Metadata.Labels["app.kubernetes.io/name"] != "kudos"
	})
	require.Len(t, list, 9, "seven roles, two jobs")
	return list
}

func selects(want, labels map[string]string) bool {
	for key, value := range want {
		if labels[key] != value {
			return false
		}
	}
	return len(want) > 0
}
