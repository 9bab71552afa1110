package deploy

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"kudos/cli"
	"kudos/config"
)

// service has the fields of a service in docker-compose.yml that these tests check.
type service struct {
	Image                             string
	Build                             *struct{ Context, Dockerfile string }
	Environment                       map[string]string
	Command, Ports, Profiles, Volumes []string
	ReadOnly                          bool     `yaml:"read_only"`
	CapDrop                           []string `yaml:"cap_drop"`
	SecurityOpt                       []string `yaml:"security_opt"`
	Healthcheck                       *struct {
		Test    []string
		Timeout string
	}
	StopGracePeriod string                                `yaml:"stop_grace_period"`
	DependsOn       map[string]struct{ Condition string } `yaml:"depends_on"`
}

func composeServices(t *testing.T) map[string]service {
	services := readYAML[struct{ Services map[string]service }](t, "../docker-compose.yml").Services
	require.NotEmpty(t, services)
	return services
}

func readYAML[T any](t *testing.T, path string) (into T) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &into), path)
	return into
}

// TestComposeFitsTheProgram checks the file against the program's commands and settings: tests run no container engine.
func TestComposeFitsTheProgram(t *testing.T) {
	services := composeServices(t)
	for name, s := range services {
		for other, on := range s.DependsOn {
			dependency, exists := services[other]
			require.True(t, exists, "%s depends on %s, which does not exist", name, other)
			if on.Condition == "service_healthy" {
				require.NotNil(t, dependency.Healthcheck, "%s waits for the health of %s, which has no healthcheck",
					name, other)
			}
		}
		for _, port := range s.Ports {
			require.True(t, strings.HasPrefix(port, "127.0.0.1:"), "%s: port %s is open to the network", name, port)
		}
		if s.Build != nil {
			t.Run(name, func(t *testing.T) { checkOwnService(t, s) })
		}
	}
}

func checkOwnService(t *testing.T, s service) {
	cmd, rest, err := cli.Root().Find(s.Command)
	require.NoError(t, err)
	require.Empty(t, rest, "%v is not a command", s.Command)
	require.True(t, cmd.HasParent(), "the command is missing")
	if cmd.GroupID == "roles" {
		checkHealthcheck(t, s)
	}
	require.Equal(t, "deploy/"+dockerfilePath, s.Build.Dockerfile)
	require.True(t, s.ReadOnly)
	require.Equal(t, []string{"ALL"}, s.CapDrop)
	require.Equal(t, []string{"no-new-privileges:true"}, s.SecurityOpt)
	if cmd.GroupID == "roles" && cmd.Name() != "producer" {
		require.Len(t, s.Volumes, 1)
		_, target, named := strings.Cut(s.Volumes[0], ":")
		if !named {
			target = s.Volumes[0]
		}
		require.Equal(t, imageOf(t).WorkingDir, target, "no volume is mounted at the image's working directory")
	}

	for key, value := range s.Environment {
		t.Setenv(key, value)
	}
	cfg, err := config.Load(config.Sources{})
	require.NoError(t, err)
	require.NoError(t, cfg.RequireMySQL())
	if s.StopGracePeriod != "" {
		grace, err := time.ParseDuration(s.StopGracePeriod)
		require.NoError(t, err)
		require.Greater(t, grace, cfg.Admin.ShutdownTimeout+
			max(cfg.Producer.ShutdownTimeout, cfg.Processor.ShutdownTimeout, cfg.Ranker.ShutdownTimeout))
	}
}

// checkHealthcheck: a role's health check is `kudos health`, since the image has no shell.
func checkHealthcheck(t *testing.T, s service) {
	require.NotNil(t, s.Healthcheck, "a role without a healthcheck")
	test := s.Healthcheck.Test
	require.Greater(t, len(test), 2)
	require.Equal(t, "CMD", test[0], "there is no shell in the image")
	require.Equal(t, []string{test[1]}, imageOf(t).Entrypoint)
	cmd, rest, err := cli.Root().Find(test[2:])
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Equal(t, "health", cmd.Name())
	timeout, err := time.ParseDuration(s.Healthcheck.Timeout)
	require.NoError(t, err)
	require.Greater(t, timeout, cli.HealthTimeout, "the command would be killed before it reports the cause")
}

// TestComposeDirectoriesExist: mounted files exist, services with mounts are optional, Prometheus scrapes all roles.
func TestComposeDirectoriesExist(t *testing.T) {
	var mounted int
	var roles []string
	for name, s := range composeServices(t) {
		if s.Build != nil && s.Healthcheck != nil {
			roles = append(roles, name)
		}
		for _, v := range s.Volumes {
			if from, _, _ := strings.Cut(v, ":"); strings.HasPrefix(from, "./") {
				mounted++
				_, err := os.Stat(filepath.Join("..", from))
				require.NoError(t, err, name)
				require.NotEmpty(t, s.Profiles, name)
			}
		}
	}
	require.NotZero(t, mounted)
	prometheus := readYAML[struct {
		RuleFiles []string `yaml:"rule_files"`
		Scrapes   []struct {
			DNS []struct {
				Names []string
				Port  int
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}](t, "prometheus/prometheus.yaml")
	for _, file := range prometheus.RuleFiles {
		require.FileExists(t, filepath.Join("prometheus", file))
	}
	require.ElementsMatch(t, roles, prometheus.Scrapes[0].DNS[0].Names, "Prometheus must scrape exactly the roles")
	require.Equal(t, fmt.Sprintf(":%d", prometheus.Scrapes[0].DNS[0].Port), imageOf(t).Env["KUDOS_ADMIN_ADDR"])
}

func TestComposeHasTheKafkaThatTestsRun(t *testing.T) {
	pom, err := os.ReadFile("../integration/stack/kafka/pom.xml")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^  <version>(.*)</version>$`).FindSubmatch(pom)
	require.NotNil(t, version)
	require.Equal(t, "apache/kafka:"+string(version[1]), composeServices(t)["kafka"].Image)
}

// TestImageSettings: settings are valid, all writes are below the volume, kudos dev is left out, the user unprivileged.
func TestImageSettings(t *testing.T) {
	image := imageOf(t)
	for name, value := range image.Env {
		t.Setenv(name, value)
	}
	cfg, err := config.Load(config.Sources{})
	require.NoError(t, err)
	for _, dir := range []string{cfg.Processor.StateDir, cfg.Ranker.StateDir, cfg.Reader.StateDir, cfg.Archive.Dir} {
		require.Equal(t, image.WorkingDir, path.Dir(dir))
	}
	require.Equal(t, image.WorkingDir, os.TempDir(), "an image built from scratch has no /tmp")
	require.Regexp(t, `^[1-9]\d*:[1-9]\d*$`, image.User,
		"must be a number, so that Kubernetes can verify that it is not root")
	require.Equal(t, "SIGTERM", image.StopSignal)
	dockerfile, err := os.ReadFile(dockerfilePath)
	require.NoError(t, err)
	require.Contains(t, string(dockerfile), "-tags nodev")
	gomod, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(gomod)
	require.Contains(t, string(dockerfile), "golang:"+string(language[1]), "must be the Go version of go.mod")
}
