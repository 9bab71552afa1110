// Package browser tests the dashboard where it is used: in a real browser, on a reader, producer, processor and ranker
// that run as processes between a real Kafka and MariaDB. dashboard.test.mjs drives Chromium; where it wants the reader
// killed or started, it asks the Go test over loopback.
package browser
