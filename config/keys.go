package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"
	"github.com/go-viper/mapstructure/v2"
)

// setting is one leaf of the settings tree: its key and its field in a Config.
type setting struct {
	key   string // kafka.client_id
	value reflect.Value
}

// settings returns the leaves of c in field order. Their values can be set.
func settings(c *Config) []setting { return appendSettings(nil, "", reflect.ValueOf(c).Elem()) }

// Keys lists the keys of all settings, in the order of the example file.
func Keys() (keys []string) {
	c := Default()
	for _, s := range settings(&c) {
		keys = append(keys, s.key)
	}
	return keys
}

func appendSettings(list []setting, prefix string, v reflect.Value) []setting {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag.Get("mapstructure")
		if tag == "-" { // not a user setting
			continue
		}
		key := prefix + tag
		if v.Field(i).Kind() == reflect.Struct {
			list = appendSettings(list, key+".", v.Field(i))
			continue
		}
		list = append(list, setting{key, v.Field(i)})
	}
	return list
}

const envPrefix = "KUDOS_"

// EnvName is the environment variable for a key: KUDOS_KAFKA_CLIENT_ID.
func EnvName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

func unknown(what, name string, known []string) error {
	if near, ok := nearest(name, known); ok {
		return fmt.Errorf("%s %s is unknown; did you mean %s?", what, name, near)
	}
	return fmt.Errorf(`%s %s is unknown; "kudos config" lists every key`, what, name)
}

// nearest returns the known name with the smallest edit distance from name, if that is at most a third of its length.
// Otherwise it is the only one that ends with name (brokers for kafka.brokers, KUDOS_BROKERS for KUDOS_KAFKA_BROKERS).
func nearest(name string, known []string) (string, bool) {
	best, distance := "", len(name)/3+1
	for _, k := range known {
		if d := levenshtein.ComputeDistance(name, k); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return best, true
	}
	end := strings.TrimPrefix(name, envPrefix)
	endings := 0
	for _, k := range known {
		if strings.HasSuffix(k, "."+end) || strings.HasSuffix(k, "_"+end) {
			best = k
			endings++
		}
	}
	return best, endings == 1
}

// decode sets a setting from its text, so that all sources parse and bound numbers and durations in the same way.
func decode(raw any, s setting) error {
	given, isList := raw.([]any)
	switch {
	case s.value.Kind() != reflect.Slice && isList:
		return fmt.Errorf("a list of %d values is not %s", len(given), typeName(s.value))
	case s.value.Kind() != reflect.Slice:
		return decodeText(textOf(raw), s.value)
	case !isList && raw != "": // separated by commas, as in the environment
		for text := range strings.SplitSeq(fmt.Sprint(raw), ",") {
			given = append(given, text)
		}
	}
	list := reflect.MakeSlice(s.value.Type(), len(given), len(given))
	for i, one := range given { // one by one, so that an error names the invalid element
		if err := decodeText(textOf(one), list.Index(i)); err != nil {
			return fmt.Errorf("element %d of the list: %w", i+1, err)
		}
	}
	s.value.Set(list)
	return nil
}

func textOf(raw any) string { return strings.TrimSpace(fmt.Sprint(raw)) }

func decodeText(text string, into reflect.Value) error {
	d, _ := mapstructure.NewDecoder(&mapstructure.DecoderConfig{ // fails only if Result is no pointer
		Result: into.Addr().Interface(),
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			mapstructure.StringToTimeDurationHookFunc(), mapstructure.StringToBasicTypeHookFunc()),
	})
	switch err := d.Decode(text); {
	case err == nil:
		return nil
	case text == "":
		return errors.New("is empty; it must be " + typeName(into))
	}
	return fmt.Errorf("%q is not %s", text, typeName(into))
}

func typeName(v reflect.Value) string {
	if v.Type() == reflect.TypeFor[time.Duration]() {
		return "a duration with its unit, such as 500ms, 30s or 5m"
	}
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	if v.CanUint() {
		return fmt.Sprintf("a whole number from 0 to 2^%d-1", v.Type().Bits())
	}
	return fmt.Sprintf("a whole number below 2^%d", v.Type().Bits()-1)
}
