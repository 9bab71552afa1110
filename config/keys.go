package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// setting is one leaf of the tree: its key, and its value in a Config.
type setting struct {
	key   string // kafka.client_id
	value reflect.Value
}

// settings lists the leaves of c, in the order of its fields. The values can be set.
func settings(c *Config) []setting { return appendSettings(nil, "", reflect.ValueOf(c).Elem()) }

func appendSettings(list []setting, prefix string, v reflect.Value) []setting {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag.Get("mapstructure")
		if tag == "-" { // set by the program
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

// EnvName is the environment variable of a key: KUDOS_KAFKA_CLIENT_ID.
func EnvName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// unknown makes the error for a name that is none of known, with the nearest of
// them where there is one near.
func unknown(what, name string, known []string) error {
	if near, ok := nearest(name, known); ok {
		return fmt.Errorf("%s %s is not known; did you mean %s?", what, name, near)
	}
	return fmt.Errorf(`%s %s is not known; "kudos config" lists every key`, what, name)
}

// nearest returns the known name with the fewest edits from name, if a third of the
// name or less has to change; or else the only one that ends with it (brokers for
// kafka.brokers, KUDOS_BROKERS for KUDOS_KAFKA_BROKERS).
func nearest(name string, known []string) (string, bool) {
	best, distance := "", len(name)/3+1
	for _, k := range known {
		if d := editDistance(name, k); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return best, true
	}
	end := strings.TrimPrefix(name, envPrefix)
	var ending []string
	for _, k := range known {
		if strings.HasSuffix(k, "."+end) || strings.HasSuffix(k, "_"+end) {
			ending = append(ending, k)
		}
	}
	if len(ending) == 1 {
		return ending[0], true
	}
	return "", false
}

// editDistance is Levenshtein's, by bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func keysOf(list []setting) []string {
	keys := make([]string, len(list))
	for i, s := range list {
		keys[i] = s.key
	}
	return keys
}

// isSection says whether name is a part of the tree that holds keys ("kafka").
func isSection(name string, keys []string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, name+".") })
}
