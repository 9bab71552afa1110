// Package browser tests the dashboard where it is used: in a real browser, on a reader,
// producer, processor and ranker that run as processes between a real Kafka and MariaDB.
//
// The Go test here brings the system up and runs dashboard.test.mjs, which drives
// Chromium. Where that wants the reader killed or started, it asks the test over
// loopback (control_test.go).
package browser
