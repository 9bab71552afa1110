package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ticksPerSecond is the unit of CPU times in /proc: USER_HZ, 100 on every architecture that Linux runs Go on.
const ticksPerSecond = 100

// cpuSeconds is the CPU time, in user and kernel mode, that a process of this machine has taken so far.
func cpuSeconds(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything. Behind it: state is field 3, utime 14, stime 15 (proc(5)).
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	return float64(ticks) / ticksPerSecond, nil
}

// memory is what a process has of memory: resident now, and the most since its start or since resetPeak.
type memory struct{ resident, peak int64 }

func memoryOf(pid int) (memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	var m memory
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*int64{"VmRSS": &m.resident, "VmHWM": &m.peak}[name]
		if into == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			return memory{}, fmt.Errorf("/proc/%d/status: %w", pid, err)
		}
		*into = kib << 10
	}
	return m, nil
}

// resetPeak has the kernel count a process's peak anew (proc(5), clear_refs).
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// meter reads what the servers of a run cost. Where their processes are not on this machine, there is nothing to read.
type meter struct {
	pids  map[string]int
	begin map[string]float64
}

// startMeter begins to measure the named processes.
func startMeter(pids map[string]int) (*meter, error) {
	m := &meter{pids: map[string]int{}, begin: map[string]float64{}}
	for name, pid := range pids {
		if err := resetPeak(pid); err != nil {
			return nil, fmt.Errorf("measuring %s: %w", name, err)
		}
		if err := m.add(name, pid); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// add begins to measure a process whose peak is that of its life.
func (m *meter) add(name string, pid int) error {
	cpu, err := cpuSeconds(pid)
	if err != nil {
		return fmt.Errorf("measuring %s: %w", name, err)
	}
	m.pids[name], m.begin[name] = pid, cpu
	return nil
}

// on tells whether a process is measured.
func (m *meter) on(name string) bool { return m.pids[name] != 0 }

// hasProc tells whether this system shows processes in /proc, as Linux does.
func hasProc() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

// Usage is what one process cost.
type Usage struct {
	CPUSeconds float64 `json:"cpu_seconds"`
	PeakBytes  int64   `json:"peak_bytes"`
}

func (m *meter) read() (map[string]Usage, error) {
	used := map[string]Usage{}
	for name, pid := range m.pids {
		cpu, err := cpuSeconds(pid)
		if err != nil {
			return nil, fmt.Errorf("measuring %s: %w", name, err)
		}
		mem, err := memoryOf(pid)
		if err != nil {
			return nil, fmt.Errorf("measuring %s: %w", name, err)
		}
		used[name] = Usage{CPUSeconds: cpu - m.begin[name], PeakBytes: mem.peak}
	}
	return used, nil
}
