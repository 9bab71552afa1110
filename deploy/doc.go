// Package deploy is what deploys kudos: the image, Kubernetes objects, alerts and dashboards. Its Go
// files are tests that compare them with the commands and settings of the program.
package deploy
