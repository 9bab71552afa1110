package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The folders that kubectl applies, and what the alerts are called here.
const (
	devFolder        = "deploy/kubernetes/overlays/dev"
	productionFolder = "deploy/kubernetes/overlays/production"
	strimziFolder    = "deploy/kubernetes/strimzi"
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
	ServiceName          string
	Replicas             *int
	VolumeClaimTemplates []struct{ Metadata struct{ Name string } }
	Template             struct {
		Metadata struct{ Labels map[string]string }
		Spec     pod
	}
}

type pod struct {
	ServiceAccountName            string
	AutomountServiceAccountToken  *bool
	EnableServiceLinks            *bool
	TerminationGracePeriodSeconds int
	SecurityContext               struct {
		RunAsNonRoot   bool
		RunAsUser      int
		SeccompProfile struct{ Type string }
	}
	Containers []container
	Volumes    []struct {
		Name      string
		ConfigMap *struct{ Name string }
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
	LivenessProbe, ReadinessProbe *struct{ HTTPGet struct{ Path, Port string } }
	Lifecycle                     struct {
		PreStop struct{ Sleep struct{ Seconds int } }
	}
	SecurityContext struct {
		AllowPrivilegeEscalation *bool
		ReadOnlyRootFilesystem   bool
		Capabilities             struct{ Add, Drop []string }
	}
	Resources    struct{ Requests, Limits map[string]any }
	VolumeMounts []struct{ Name, MountPath string }
}

// port is the number of a named port, 0 without.
func (c container) port(name string) int {
	for _, p := range c.Ports {
		if p.Name == name {
			return p.ContainerPort
		}
	}
	return 0
}

// manifests are the objects of each folder, and the alerts' one: integration/k8scheck builds them as kubectl does, and
// decodes them strictly. Once for all tests.
var manifests = sync.OnceValues(func() (map[string][]object, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // compiling takes a while, the first time
	defer cancel()
	dir, err := os.MkdirTemp("", "kudos-kubernetes-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	alerts, err := exec.CommandContext(ctx, "deploy/kubernetes/prometheusrule.sh").Output()
	if err != nil {
		return nil, fmt.Errorf("deploy/kubernetes/prometheusrule.sh: %w", err)
	}
	names := map[string]string{filepath.Join(dir, "alerts.yaml"): alertsObject} // by path
	if err := os.WriteFile(filepath.Join(dir, "alerts.yaml"), alerts, 0o600); err != nil {
		return nil, err
	}
	for _, folder := range []string{devFolder, productionFolder, strimziFolder} {
		path, err := filepath.Abs(folder)
		if err != nil {
			return nil, err
		}
		names[path] = folder
	}
	check := exec.CommandContext(ctx, "go", append([]string{"run", "."}, slices.Sorted(maps.Keys(names))...)...)
	check.Dir = "integration/k8scheck"
	var stderr bytes.Buffer
	check.Stderr = &stderr
	out, err := check.Output()
	if err != nil {
		return nil, fmt.Errorf("integration/k8scheck: %w\n%s", err, stderr.Bytes())
	}
	var byPath map[string][]object
	if err := json.Unmarshal(out, &byPath); err != nil {
		return nil, err
	}
	objects := map[string][]object{}
	for path, list := range byPath {
		objects[names[path]] = list
	}
	return objects, nil
})

func objectsOf(t *testing.T, folder string) []object {
	t.Helper()
	all, err := manifests()
	require.NoError(t, err)
	require.NotEmpty(t, all[folder], folder)
	return all[folder]
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
	require.Len(t, list, 6, "four roles, two jobs")
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
