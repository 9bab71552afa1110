package producer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
	"kudos/stream/admin"
)

func cpuOf(pid int) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
	u, _ := strconv.Atoi(f[11])
	s, _ := strconv.Atoi(f[12])
	return float64(u+s) / 100
}

func TestZZAB(t *testing.T) {
	kafka := shared.Kafka(t)
	brokers := strings.Join(kafka.Brokers(), ",")
	bins := strings.Split(os.Getenv("AB"), ",")
	out, err := exec.CommandContext(t.Context(), bins[0], "topics", "apply", "--brokers", brokers, "--set", "topics.partitions=4", "--set", "topics.replication_factor=1").CombinedOutput()
	require.NoError(t, err, "%s", out)
	type run struct{ p *stack.Server; http, admin string }
	var runs []run
	for i, bin := range bins {
		var at [2]string
		for i := range at {
			r, err := stack.Reserve()
			require.NoError(t, err)
			at[i] = r.Address()
		}
		p := stack.NewProgram(stack.ProgramOptions{Name: fmt.Sprint("producer", i), Path: bin, Dir: t.TempDir(),
			Args:  append([]string{"producer", "--brokers", brokers, "--set", "producer.http_addr=" + at[0], "--set", "admin.addr=" + at[1]}, strings.Fields(os.Getenv("ARGS"))...),
			Probe: func(ctx context.Context) error { return admin.Ask(ctx, at[1]) }})
		require.NoError(t, p.Start(t.Context()))
		defer p.Kill()
		runs = append(runs, run{p, at[0], at[1]})
	}
	singleRate, _ := strconv.ParseFloat(os.Getenv("SINGLE"), 64)
	batchRate, _ := strconv.ParseFloat(os.Getenv("BATCH"), 64)
	lines := 1000
	if n, err := strconv.Atoi(os.Getenv("LINES")); err == nil { lines = n }
	rounds, _ := strconv.Atoi(os.Getenv("ROUNDS"))
	for _, kind := range []struct {
		name  string
		lines int
		rate  float64
	}{{"single", 0, singleRate}, {"batch", lines, batchRate}} {
		if kind.rate == 0 {
			continue
		}
		for round := range rounds {
			for i, r := range runs {
				o := DefaultOptions()
				o.Addr = r.http
				l := &load{options: &o, likes: newLikes(uint64(1+round*10_000_000), 1000), lines: kind.lines}
				prof := make(chan struct{})
				go func() {
					defer close(prof)
					if round != rounds-1 || os.Getenv("PROF") == "" {
						return
					}
					resp, err := http.Get("http://" + r.admin + "/debug/pprof/profile?seconds=4")
					if err != nil {
						return
					}
					f, _ := os.Create(fmt.Sprintf("%s/%s%d.prof", os.Getenv("PROF"), kind.name, i))
					io.Copy(f, resp.Body)
					f.Close()
				}()
				before, self, kf := cpuOf(r.p.PID()), cpuOf(os.Getpid()), 0.0
				s, err := l.hold(t.Context(), kind.rate, 5*time.Second)
				require.NoError(t, err)
				fmt.Printf("%s %d: %.0f/s accepted %d cpu/like %.2f us (load %.2f us) p50 %.2f p99 %.2f p999 %.2f unsent %d fail %q %v\n", kind.name, i, s.LikesPerSecond, s.Accepted, (cpuOf(r.p.PID())-before)*1e6/float64(s.Accepted), (cpuOf(os.Getpid())-self)*1e6/float64(s.Accepted), s.P50Ms, s.P99Ms, s.P999Ms, s.Unsent, s.FirstFailure, kf)
				<-prof
			}
		}
	}
}
