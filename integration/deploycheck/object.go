package main

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/yaml"
)

// object is one that the API server would take.
type object struct {
	json  json.RawMessage // as it was written
	typed runtime.Object  // of Kubernetes' own kinds: with its defaults
}

// strict refuses fields that a type does not know, and those that stand twice.
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
	internal, err := legacyscheme.Scheme.ConvertToVersion(typed, schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return nil, err
	}
	o.typed = typed
	return o, validate(internal)
}
