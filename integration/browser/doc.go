// Package browser tests the dashboard in a real browser, with all roles of kudos as processes on a real Kafka and
// MariaDB. dashboard.test.mjs drives Chromium, and calls the Go test over loopback to kill or start the reader.
package browser
