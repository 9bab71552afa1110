package bench

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Machine is what runs took place on.
type Machine struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	MemoryBytes int64  `json:"memory_bytes"`
	System      string `json:"system"` // operating system, kernel and architecture
}

// ThisMachine describes this machine, as far as /proc tells.
func ThisMachine() Machine {
	m := Machine{CPU: "unknown", Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if cpu := procField("/proc/cpuinfo", "model name"); cpu != "" {
		m.CPU = cpu
	}
	if kib, err := strconv.ParseInt(strings.TrimSuffix(procField("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		m.MemoryBytes = kib << 10
	}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System = "Linux " + strings.TrimSpace(string(kernel)) + ", " + runtime.GOARCH
	}
	return m
}

// procField is the value of the first line `name : value` of a file, or empty.
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
