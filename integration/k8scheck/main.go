// Command k8scheck builds kustomizations as kubectl does, decodes every object by the types of its API, and prints all of
// them as JSON: a list for each argument, by its path. What does not build, or has a field that its type does not
// know, is an error with its place.
//
//	k8scheck deploy/kubernetes/overlays/production deploy/kubernetes/strimzi rule.yaml
//
// A file is one object as it is. It is a module of its own: Kubernetes' code is for this, and not for the program.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

func main() {
	objects := map[string][]json.RawMessage{}
	var errs []error
	for _, path := range os.Args[1:] {
		list, err := load(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
		objects[path] = list
	}
	err := errors.Join(errs...)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(objects)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// load builds a folder, or reads a file.
func load(path string) ([]json.RawMessage, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return build(path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	object, err := decode(text)
	return []json.RawMessage{object}, err
}

// build tells everything that is wrong with a kustomization, and not only the first of it.
func build(dir string) ([]json.RawMessage, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	var objects []json.RawMessage
	var errs []error
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			return nil, err
		}
		object, err := decode(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.CurId(), err))
		}
		objects = append(objects, object)
	}
	return objects, errors.Join(errs...)
}

// decode reads an object by its type, and returns it as it was written.
func decode(text []byte) (json.RawMessage, error) {
	var head metav1.TypeMeta
	if err := yaml.Unmarshal(text, &head); err != nil {
		return nil, err
	}
	of, known := kinds[head.APIVersion+" "+head.Kind]
	if !known {
		return nil, fmt.Errorf("%s %s is no kind that this knows; add it to kinds.go", head.APIVersion, head.Kind)
	}
	if err := yaml.UnmarshalStrict(text, of()); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(text)
}
