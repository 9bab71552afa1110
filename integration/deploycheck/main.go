// Command deploycheck reads a deployment file like the tool that it is for: it builds a kustomization like kubectl,
// lints and renders its chart with Helm, validates each object like the Kubernetes API server, checks pods against the
// Pod Security Standard that their namespace enforces, parses a Dockerfile like BuildKit, or lists an image's build
// context. It prints the result as JSON: a list, by path. Whatever the tools would reject is an error, with its place.
//
//	deploycheck deploy/kubernetes/overlays/production|deploy/helm/production|rule.yaml|deploy/Dockerfile|.dockerignore
//
// It is a separate module, to keep the dependencies on Kubernetes, Helm and BuildKit out of the program.
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
	path := os.Args[1]
	list, err := load(path)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(map[string][]json.RawMessage{path: list})
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
		os.Exit(1)
	}
}

// load builds a directory, or reads a file: a Dockerfile, a .dockerignore, or a single object.
func load(path string) ([]json.RawMessage, error) {
	if filesys.MakeFsOnDisk().IsDir(path) {
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
	return []json.RawMessage{o.json}, err
}

// build reports all errors of a kustomization, not only the first.
func build(dir string) ([]json.RawMessage, error) {
	options := krusty.MakeDefaultOptions()
	options.PluginConfig.HelmConfig.Enabled, options.PluginConfig.HelmConfig.Command = true, "./helm.sh"
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	var objects []object
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

func readObject(text []byte) (o object, err error) {
	var head metav1.TypeMeta
	if err := yaml.Unmarshal(text, &head); err != nil {
		return o, err
	}
	if o.json, err = yaml.YAMLToJSONStrict(text); err != nil {
		return o, err
	}
	if of, known := operatorKinds[head.APIVersion+" "+head.Kind]; known {
		return o, yaml.UnmarshalStrict(text, of())
	}
	typed, kind, err := strict.Decode(o.json, nil, nil)
	if err != nil {
		return o, err
	}
	legacyscheme.Scheme.Default(typed)
	internal, err := legacyscheme.Scheme.ConvertToVersion(typed,
		schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return o, err
	}
	o.typed = typed
	return o, validate(internal)
}
