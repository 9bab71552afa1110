// Package browser tests the dashboard in a real browser, with a reader, producer, processor and ranker running as
// processes on a real Kafka and MariaDB. dashboard.test.mjs drives Chromium. To kill or start the reader, it calls the
// Go test over loopback.
package browser
