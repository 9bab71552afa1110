package stack

import (
	"context"
	_ "embed" // the pom file
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
)

//go:embed registry/pom.xml
var registryPOM []byte

// Registry is a schema registry, Apicurio. It keeps schemas in memory.
type Registry struct{ single }

// RegistryForTest starts a registry until the end of the test. It downloads what is missing, 140 MB.
func RegistryForTest(t testing.TB) *Registry {
	t.Helper()
	Require(t, NeedKafka) // Java and Maven
	r, err := startRegistry(t.Context(), testLog(t))
	return own(t, r, err)
}

func startRegistry(ctx context.Context, log *slog.Logger) (_ *Registry, err error) {
	java, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	app, err := newArtifact("registry", registryPOM, "dependency:unpack")
	if err != nil {
		return nil, err
	}
	appDir, err := app.fetch(ctx, log)
	if err != nil {
		return nil, err
	}
	r := &Registry{}
	if r.dir, err = makeDir("", "kudos-registry-"); err != nil {
		return nil, fmt.Errorf("start registry: %w", err)
	}
	defer CloseOnError(&err, r.Close)
	if r.port, err = Reserve(); err != nil {
		return nil, err
	}
	jar := filepath.Join(appDir, "apicurio-registry-app-"+app.version+"-runner.jar")
	r.Server = NewProgram(ProgramOptions{
		Name: "registry", Path: java, Dir: r.dir, Log: log, Probe: r.answers,
		Args: append(quickJava("512m"), "-Dquarkus.http.host=127.0.0.1",
			fmt.Sprint("-Dquarkus.http.port=", r.port.number), "-jar", jar),
	})
	return r, r.Start(ctx)
}

// URL is that of Confluent's API.
func (r *Registry) URL() string { return "http://" + r.Address() + "/apis/ccompat/v7" }

func (r *Registry) answers(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL()+"/subjects", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("registry: %s", resp.Status)
	}
	return nil
}

// AvroConverters are the settings of a connector that writes Avro, with ids as Confluent's serializers write them.
func (r *Registry) AvroConverters() map[string]string {
	config := map[string]string{}
	for _, part := range []string{"key.converter", "value.converter"} {
		config[part] = "io.apicurio.registry.utils.converter.AvroConverter"
		for key, value := range map[string]string{"url": "http://" + r.Address() + "/apis/registry/v2",
			"auto-register": "true", "find-latest": "true", "use-id": "contentId", "as-confluent": "true",
			"headers.enabled": "false"} {
			config[part+".apicurio.registry."+key] = value
		}
	}
	return config
}
