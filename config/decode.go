package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
)

// decode reads a value of any source into its setting, by way of its text: numbers
// and durations are then parsed, and bounded, in one way wherever they were given.
func decode(raw any, s setting) error {
	if s.value.Kind() == reflect.Slice {
		return decodeList(listOf(raw), s.value)
	}
	if list, ok := raw.([]any); ok {
		return fmt.Errorf("a list of %d is not %s", len(list), typeName(s.value))
	}
	return decodeText(strings.TrimSpace(fmt.Sprint(raw)), s.value)
}

// decodeList reads the elements one by one: an error names the one that is wrong.
func decodeList(texts []string, into reflect.Value) error {
	list := reflect.MakeSlice(into.Type(), len(texts), len(texts))
	for i, text := range texts {
		if err := decodeText(text, list.Index(i)); err != nil {
			return fmt.Errorf("number %d of the list: %w", i+1, err)
		}
	}
	into.Set(list)
	return nil
}

func decodeText(text string, into reflect.Value) error {
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: into.Addr().Interface(),
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			mapstructure.StringToTimeDurationHookFunc(),
			mapstructure.StringToBasicTypeHookFunc(),
		),
	})
	if err != nil {
		return err
	}
	if err := d.Decode(text); err != nil {
		return valueError(text, into)
	}
	return nil
}

// listOf takes a list of YAML, or one text with commas as the environment has it.
func listOf(raw any) []string {
	list, ok := raw.([]any)
	if !ok {
		text := fmt.Sprint(raw)
		if text == "" {
			return []string{}
		}
		for _, e := range strings.Split(text, ",") {
			list = append(list, e)
		}
	}
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = strings.TrimSpace(fmt.Sprint(e))
	}
	return texts
}

func valueError(text string, want reflect.Value) error {
	if text == "" {
		return errors.New("is empty; it must be " + typeName(want))
	}
	return fmt.Errorf("%q is not %s", text, typeName(want))
}

// typeName tells a person what a setting takes.
func typeName(v reflect.Value) string {
	if v.Type() == reflect.TypeFor[time.Duration]() {
		return "a duration with its unit, such as 500ms, 30s or 5m"
	}
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	if v.CanUint() {
		return fmt.Sprintf("a whole number from 0 to 2^%d-1", v.Type().Bits())
	}
	return fmt.Sprintf("a whole number below 2^%d", v.Type().Bits()-1)
}
