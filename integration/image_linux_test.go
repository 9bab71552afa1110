package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/deployed"
	"kudos/integration/stack"
	"kudos/integration/tier"
)

// image is the result of the Dockerfile: files, and how to run one of them.
type image struct {
	t                testing.TB
	root             string // the directory of the files
	contain          string // path of the program that runs it
	WorkingDir, User string
	Env              map[string]string
	Entrypoint       []string
	Runs             []string // build commands
}

// buildImage executes the Dockerfile's commands, on the files that .dockerignore lets through.
func buildImage(t testing.TB) *image {
	i := deployed.Read[*image](t, "deploy/Dockerfile")[0]
	i.t, i.root = t, t.TempDir()
	source := t.TempDir()
	for _, file := range deployed.Read[string](t, ".dockerignore") {
		require.NoError(t, os.MkdirAll(filepath.Join(source, filepath.Dir(file)), 0o755))
		text := readText(t, filepath.Join("..", file))
		require.NoError(t, os.WriteFile(filepath.Join(source, file), []byte(text), 0o644))
	}
	for _, command := range i.Runs {
		if !strings.Contains(command, "/out/") {
			continue // it downloads modules, which are present
		}
		// Without -trimpath and default.pgo, which would recompile everything and change nothing here.
		command = strings.NewReplacer("/out/", i.root+"/", " -trimpath", "").Replace(command)
		run := exec.CommandContext(t.Context(), "sh", "-c", command)
		run.Dir, run.Env = source, append(os.Environ(), "GOFLAGS=-pgo=off", "VERSION=v1.2.3", "PROGRAM=full")
		out, err := run.CombinedOutput()
		require.NoError(t, err, "%s\n%s", command, out)
	}
	i.contain = filepath.Join(t.TempDir(), "contain")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", i.contain, "./cmd/contain").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return i
}

// volume returns a directory that only the image's user may write to, as an orchestrator provides it.
func (i *image) volume() string {
	dir := i.t.TempDir()
	uid, gid := i.user()
	require.NoError(i.t, os.Chown(dir, uid, gid))
	return dir
}

func (i *image) user() (uid, gid int) {
	_, err := fmt.Sscanf(i.User, "%d:%d", &uid, &gid)
	require.NoError(i.t, err, i.User)
	return uid, gid
}

// container returns a program of the image with additional settings. It is stopped at the end of the test.
func (i *image) container(name, volume string, settings map[string]string, args ...string) *stack.Server {
	uid, gid := i.user()
	env := maps.Clone(i.Env)
	maps.Copy(env, settings)
	var variables []string
	for name, value := range env {
		variables = append(variables, name+"="+value)
	}
	text, err := json.Marshal(map[string]any{"Root": i.root, "WorkingDir": i.WorkingDir, "Volume": volume, "UID": uid,
		"GID": gid, "Args": slices.Concat(i.Entrypoint, args), "Env": variables})
	require.NoError(i.t, err)
	return stack.ProgramForTest(i.t, stack.ProgramOptions{Name: name, Path: i.contain, Args: []string{string(text)},
		Account: func(a *syscall.SysProcAttr) { a.Cloneflags |= syscall.CLONE_NEWNS }})
}

func (i *image) run(volume string, settings map[string]string, args ...string) (output string, ended error) {
	p := i.container(args[0], volume, settings, args...)
	require.NoError(i.t, p.Start(i.t.Context()))
	select {
	case <-p.Done():
	case <-time.After(2 * time.Minute):
		require.Fail(i.t, "the command does not exit", "kudos %v\n%s", args, p.LogTail())
	}
	return readText(i.t, p.LogPath()), p.Exit()
}

func (i *image) mustRun(volume string, settings map[string]string, args ...string) (output string) {
	output, err := i.run(volume, settings, args...)
	require.NoError(i.t, err, "kudos %s\n%s", strings.Join(args, " "), output)
	return output
}

type member struct {
	*process
	volume   string
	settings map[string]string
}

func (s *system) member(i *image, role string, hasVolume bool, settings map[string]string) *member {
	m := &member{process: &process{t: s.t, admin: stack.ReserveForTest(s.t)}}
	m.settings = map[string]string{"KUDOS_KAFKA_BROKERS": s.brokerList(), "KUDOS_MYSQL_DSN": s.dsn,
		"KUDOS_ADMIN_ADDR": m.admin}
	maps.Copy(m.settings, settings)
	if hasVolume {
		m.volume = i.volume()
	}
	m.Server = i.container(role, m.volume, m.settings, role)
	m.start().waitAlive()
	return m
}

// TestImageRuns builds the image of the Dockerfile, and runs every role like a container on a real Kafka and
// MariaDB: as an unprivileged user, without capabilities, with everything but a volume read-only. The roles start
// before topics and tables exist, and work once they do; their files are in their volumes.
func TestImageRuns(t *testing.T) {
	parallel(t, tier.Verify)
	if os.Geteuid() != 0 {
		t.Skip("requires root: it mounts file systems and changes the user")
	}
	i := buildImage(t)
	output, err := i.run("", nil, "dev")
	require.Error(t, err)
	require.Contains(t, output, `unknown command "dev"`)
	require.Contains(t, i.mustRun("", nil, "version"), "v1.2.3")

	s := newEmptySystem(t)
	s.dsn = shared.MariaDB(t).NewDatabase(t)
	s.connect()
	writes, reads := stack.ReserveForTest(t), stack.ReserveForTest(t)
	producer := s.member(i, "producer", false, map[string]string{"KUDOS_PRODUCER_HTTP_ADDR": writes})
	processor := s.member(i, "processor", true, nil)
	ranker := s.member(i, "ranker", true,
		map[string]string{"KUDOS_RANKER_IDLE_AFTER": "1s", "KUDOS_RANKER_ALLOWED_LATENESS": "0s"})
	reader := s.member(i, "reader", true, map[string]string{"KUDOS_READER_HTTP_ADDR": reads})
	archive := s.member(i, "archive", true, nil)
	members := []*member{producer, processor, ranker, reader, archive}
	for _, m := range members {
		requireConfined(t, i, m.PID())
		require.False(t, m.ready(), "%s is ready without topics", m)
	}
	i.mustRun("", producer.settings, "migrate")
	i.mustRun("", producer.settings, s.topics(s.partitions, "apply")...)
	for _, m := range members {
		m.waitReady()
		i.mustRun("", m.settings, "health")
	}

	putLike(t, "http://"+writes, 1, 2)
	s.waitCounts(map[uint64]count{1: {likes: 1}})
	waitFor(t, time.Minute, "the like to be read", func() bool {
		return get[likes](t, "http://%s/v1/posts/1/likes", reads).Likes == 1
	})
	i.mustRun(processor.volume, processor.settings, "audit", "--deep")

	for m, dir := range map[*member]string{producer: "", processor: "state", ranker: "ranker-state",
		reader: "reader-state", archive: "archive"} {
		m.stop()
		require.NoError(t, m.Exit(), m.LogTail())
		if m.volume != "" {
			left, err := os.ReadDir(m.volume)
			require.NoError(t, err)
			require.Len(t, left, 1, m.String())
			require.Equal(t, dir, left[0].Name())
		}
	}
	elsewhere := s.member(i, "processor", true, map[string]string{"KUDOS_PROCESSOR_STATE_DIR": "/elsewhere"})
	elsewhere.waitLogged("mkdir /elsewhere: read-only file system")
}

// requireConfined: a process runs as the image's user, without capabilities and without a way to gain any, and sees no
// mounts but its own.
func requireConfined(t *testing.T, i *image, pid int) {
	status := readText(t, fmt.Sprintf("/proc/%d/status", pid))
	uid, gid := i.user()
	for field, value := range map[string]string{
		"Uid": strings.Repeat(fmt.Sprintf("\t%d", uid), 4), "Gid": strings.Repeat(fmt.Sprintf("\t%d", gid), 4),
		"CapEff": "\t0000000000000000", "CapPrm": "\t0000000000000000", "NoNewPrivs": "\t1",
	} {
		require.Contains(t, status, "\n"+field+":"+value+"\n")
	}
	root, err := os.Stat(fmt.Sprintf("/proc/%d/root", pid))
	require.NoError(t, err)
	own, err := os.Stat(i.root)
	require.NoError(t, err)
	require.True(t, os.SameFile(own, root))
	mounts := readText(t, fmt.Sprintf("/proc/%d/mountinfo", pid))
	require.NotEmpty(t, mounts)
	for line := range strings.Lines(mounts) {
		require.Contains(t, []string{"/", i.WorkingDir}, strings.Fields(line)[4], "a mount that is not the container's")
	}
}
