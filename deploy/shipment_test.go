package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/tier"
)

// What there is to deploy: the image, the folders that kubectl applies, and what the alerts are called here.
const (
	dockerfilePath   = "Dockerfile"
	devFolder        = "kubernetes/overlays/dev"
	productionFolder = "kubernetes/overlays/production"
	strimziFolder    = "kubernetes/strimzi"
	alertsObject     = "alerts"
)

// object is what these tests look at of an object of Kubernetes.
type object struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Data map[string]string
	Spec json.RawMessage
}

// workload is what makes pods: a Deployment, StatefulSet or Job.
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
	ServiceAccountName            string
	AutomountServiceAccountToken  *bool
	EnableServiceLinks            *bool
	TerminationGracePeriodSeconds int
	SecurityContext               struct{ RunAsUser, RunAsGroup, FSGroup int }
	Containers                    []container
	Volumes                       []struct {
		Name      string
		ConfigMap *struct{ Name string }
		Secret    *struct {
			SecretName string
			Items      []struct{ Key, Path string }
		}
	}
}

type container struct {
	Name, Image string
	Args        []string
	Env         []struct {
		Name, Value string
		ValueFrom   *struct{ SecretKeyRef *struct{ Name, Key string } }
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
	VolumeMounts    []struct {
		Name, MountPath string
		ReadOnly        bool
	}
}

type probe struct{ HTTPGet struct{ Path, Port string } }

// port is the number of a named port, 0 without.
func (c container) port(name string) int {
	for _, p := range c.Ports {
		if p.Name == name {
			return p.ContainerPort
		}
	}
	return 0
}

// image is what the Dockerfile says of how it is run.
type image struct {
	User, WorkingDir, StopSignal string
	Env                          map[string]string
	Entrypoint, Ports            []string
}

// shipment is what is there to deploy kudos, as those read it that it is for.
type shipment struct {
	image   image
	objects map[string][]object // by folder, and the alerts'
}

// shipped reads it by integration/deploycheck, which refuses what they would refuse. Once for all tests.
var shipped = sync.OnceValues(func() (*shipment, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // compiling takes minutes, the first time
	defer cancel()
	dir, err := os.MkdirTemp("", "kudos-deploy-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	alerts, err := exec.CommandContext(ctx, "./kubernetes/prometheusrule.sh").Output()
	if err != nil {
		return nil, fmt.Errorf("kubernetes/prometheusrule.sh: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "alerts.yaml"), alerts, 0o600); err != nil {
		return nil, err
	}
	read, err := deploycheck(ctx, dockerfilePath, devFolder, productionFolder, strimziFolder, filepath.Join(dir, "alerts.yaml"))
	if err != nil {
		return nil, err
	}
	var images []image
	if err := json.Unmarshal(read[0], &images); err != nil {
		return nil, err
	}
	s := &shipment{image: images[0], objects: map[string][]object{}}
	for i, folder := range []string{devFolder, productionFolder, strimziFolder, alertsObject} {
		var list []object
		if err := json.Unmarshal(read[1+i], &list); err != nil {
			return nil, err
		}
		s.objects[folder] = list
	}
	return s, nil
})

// deploycheck returns what it prints for each of the paths.
func deploycheck(ctx context.Context, paths ...string) ([]json.RawMessage, error) {
	for i, path := range paths {
		var err error
		if paths[i], err = filepath.Abs(path); err != nil {
			return nil, err
		}
	}
	check := exec.CommandContext(ctx, "go", append([]string{"run", "."}, paths...)...)
	check.Dir = "../integration/deploycheck"
	var stderr bytes.Buffer
	check.Stderr = &stderr
	out, err := check.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", check.Dir, err, stderr.Bytes())
	}
	var byPath map[string]json.RawMessage
	if err := json.Unmarshal(out, &byPath); err != nil {
		return nil, err
	}
	read := make([]json.RawMessage, len(paths))
	for i, path := range paths {
		read[i] = byPath[path]
	}
	return read, nil
}

// imageOf is the image as the Dockerfile makes it.
func imageOf(t *testing.T) image {
	t.Helper()
	tier.Verify(t) // the code of Kubernetes and BuildKit takes minutes to compile
	all, err := shipped()
	require.NoError(t, err)
	return all.image
}

func objectsOf(t *testing.T, folder string) []object {
	t.Helper()
	tier.Verify(t)
	all, err := shipped()
	require.NoError(t, err)
	require.NotEmpty(t, all.objects[folder], folder)
	return all.objects[folder]
}

// ofKind are the objects of a kind, of which there must be one.
func ofKind(t *testing.T, folder, kind string) []object {
	t.Helper()
	var found []object
	for _, o := range objectsOf(t, folder) {
		if o.Kind == kind {
			found = append(found, o)
		}
	}
	require.NotEmpty(t, found, "%s has no %s", folder, kind)
	return found
}

// specOf decodes an object's spec.
func specOf[T any](t *testing.T, o object) (into T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(o.Spec, &into), "%s %s", o.Kind, o.Metadata.Name)
	return into
}

// workloads are those whose pods run an image.
func workloads(t *testing.T, folder string) []workload {
	t.Helper()
	var list []workload
	for _, kind := range []string{"Deployment", "StatefulSet", "Job"} {
		for _, o := range ofKind(t, folder, kind) {
			w := specOf[workload](t, o)
			w.object = o
			list = append(list, w)
		}
	}
	return list
}

// kudosWorkloads are those that run kudos.
func kudosWorkloads(t *testing.T, folder string) []workload {
	t.Helper()
	list := slices.DeleteFunc(workloads(t, folder), func(w workload) bool {
		return w.Template.Metadata.Labels["app.kubernetes.io/name"] != "kudos"
	})
	require.Len(t, list, 7, "five roles, two jobs")
	return list
}

// selects tells whether labels have all that is wanted.
func selects(want, labels map[string]string) bool {
	for key, value := range want {
		if labels[key] != value {
			return false
		}
	}
	return len(want) > 0
}
