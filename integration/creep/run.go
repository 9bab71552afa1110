package creep

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
)

// Run does a workload a number of times.
func Run(name string, repetitions int) error {
	list := Workloads()
	i := slices.IndexFunc(list, func(w Workload) bool { return w.Name == name })
	if i < 0 {
		return fmt.Errorf("there is no workload %q", name)
	}
	return list[i].run(func(repeat func() error) error {
		for range repetitions {
			if err := repeat(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *Workload) run(do func(repeat func() error) error) error {
	repeat, close, err := w.Prepare()
	if err != nil {
		return fmt.Errorf("preparing workload %s: %w", w.Name, err)
	}
	if err := errors.Join(do(repeat), close()); err != nil {
		return fmt.Errorf("workload %s: %w", w.Name, err)
	}
	return nil
}

// Allocations counts the allocations of a repetition of each workload, by name.
func Allocations() (map[string]float64, error) {
	counts := map[string]float64{}
	for _, w := range Workloads() {
		err := w.run(func(repeat func() error) error {
			if err := repeat(); err != nil { // buffers grow
				return err
			}
			before := mallocs()
			for range w.Repetitions {
				if err := repeat(); err != nil {
					return err
				}
			}
			counts[w.Name] = float64(mallocs()-before) / float64(w.Repetitions)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// mallocs is how many objects the process has allocated.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
