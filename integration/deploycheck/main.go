// Command deploycheck reads deployment files like the tools that they are for: it builds kustomizations like kubectl,
// validates each object like the Kubernetes API server, checks pods against the Pod Security Standard that their
// namespace enforces, parses a Dockerfile like BuildKit, and lists an image's build context. It prints the result as
// JSON: a list for each argument, by path. Whatever the tools would reject is an error, with its location.
//
//	deploycheck deploy/kubernetes/overlays/production rule.yaml deploy/Dockerfile .dockerignore
//
// It is a separate module, to keep the dependencies on Kubernetes and BuildKit out of the program.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

func main() {
	read := map[string][]json.RawMessage{}
	var errs []error
	for _, path := range os.Args[1:] {
		list, err := load(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
		read[path] = list
	}
	err := errors.Join(errs...)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(read)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// load builds a directory, or reads a file: a Dockerfile, a .dockerignore, or a single object.
func load(path string) ([]json.RawMessage, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return build(path)
	}
	if filepath.Base(path) == ".dockerignore" {
		return readContext(path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if filepath.Base(path) == "Dockerfile" {
		image, err := readDockerfile(text)
		return []json.RawMessage{image}, err
	}
	o, err := readObject(text)
	if err != nil {
		return nil, err
	}
	return []json.RawMessage{o.json}, nil
}

// build reports all errors of a kustomization, not only the first.
func build(dir string) ([]json.RawMessage, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	var objects []*object
	var texts []json.RawMessage
	var errs []error
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			return nil, err
		}
		o, err := readObject(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.CurId(), err))
			continue
		}
		objects, texts = append(objects, o), append(texts, o.json)
	}
	return texts, errors.Join(append(errs, checkSecurity(objects))...)
}

// object is an object that the API server would accept.
type object struct {
	json  json.RawMessage // as written
	typed runtime.Object  // built-in kinds only, with defaults applied
}

// strict rejects unknown and duplicate fields.
var strict = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

func readObject(text []byte) (*object, error) {
	var head metav1.TypeMeta
	if err := yaml.Unmarshal(text, &head); err != nil {
		return nil, err
	}
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	o := &object{json: asJSON}
	if of, known := operatorKinds[head.APIVersion+" "+head.Kind]; known {
		return o, yaml.UnmarshalStrict(text, of())
	}
	typed, kind, err := strict.Decode(asJSON, nil, nil)
	if err != nil {
		return nil, err
	}
	legacyscheme.Scheme.Default(typed)
	internal, err := legacyscheme.Scheme.ConvertToVersion(typed,
		schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return nil, err
	}
	o.typed = typed
	return o, validate(internal)
}
