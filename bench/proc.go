package bench

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// Machine describes the machine of the runs.
type Machine struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	MemoryBytes int64  `json:"memory_bytes"`
	System      string `json:"system"` // operating system, kernel and architecture
}

// thisMachine describes this machine, as far as /proc allows.
func thisMachine() Machine {
	m := Machine{CPU: cmp.Or(procField("/proc/cpuinfo", "model name"), "unknown"), Cores: runtime.NumCPU(),
		MemoryBytes: procBytes("/proc/meminfo", "MemTotal"), System: runtime.GOOS + "/" + runtime.GOARCH}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System = "Linux " + strings.TrimSpace(string(kernel)) + ", " + runtime.GOARCH
	}
	return m
}

// procField returns the value of the first line `name : value` of a file, or "".
func procField(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if n, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(n) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// procBytes returns such a value in bytes, if it is in KiB. It is 0 if the field is missing.
func procBytes(path, name string) int64 {
	kib, _ := strconv.ParseInt(strings.TrimSuffix(procField(path, name), " kB"), 10, 64)
	return kib << 10
}

// ResidentBytes is a process's resident memory, 0 without /proc.
func ResidentBytes(pid int) int64 { return procBytes(fmt.Sprintf("/proc/%d/status", pid), "VmRSS") }

// peakBytes is the peak resident memory since the process began, or since the peak was reset.
func peakBytes(pid int) int64 { return procBytes(fmt.Sprintf("/proc/%d/status", pid), "VmHWM") }

// loadAverage is the machine's load average over a minute, 0 without /proc.
func loadAverage() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// cpuSeconds is the CPU time, user and kernel, that a local process has used so far.
func cpuSeconds(pid int) (float64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return stat.CPUTime(), err
}

// Usage is the cost of one process.
type Usage struct {
	CPUSeconds float64 `json:"cpu_seconds"`
	PeakBytes  int64   `json:"peak_bytes"`
}

// meter measures the cost of the processes of a run: process ids by name, and their CPU time at the start.
type meter struct {
	pids  map[string]int
	begin map[string]float64
}

// startMeter resets the servers' memory peaks (proc(5), clear_refs). Without /proc it measures nothing.
func startMeter(contender int, servers map[string]int) (*meter, error) {
	m := &meter{pids: map[string]int{}, begin: map[string]float64{}}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return m, nil
	}
	for name, pid := range servers {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
			return nil, fmt.Errorf("measuring %s: %w", name, err)
		}
		m.pids[name] = pid
	}
	m.pids[ContenderProcess] = contender
	for name, pid := range m.pids {
		var err error
		if m.begin[name], err = cpuSeconds(pid); err != nil {
			return nil, fmt.Errorf("measuring %s: %w", name, err)
		}
	}
	return m, nil
}

func (m *meter) read() (map[string]Usage, error) {
	used := map[string]Usage{}
	for name, pid := range m.pids {
		cpu, err := cpuSeconds(pid)
		if err != nil {
			return nil, fmt.Errorf("measuring %s: %w", name, err)
		}
		used[name] = Usage{CPUSeconds: cpu - m.begin[name], PeakBytes: peakBytes(pid)}
	}
	return used, nil
}
