// Package deploy contains what deploys kudos: the image, Kubernetes objects, alerts and dashboards. Its Go files are
// tests that check them against the program's commands and settings.
package deploy
