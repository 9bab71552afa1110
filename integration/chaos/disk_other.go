//go:build !linux

package chaos

import "errors"

// disk is not available: only Linux has an easy way to create one.
type disk struct{}

func newDisk(int64) (*disk, error) {
	return nil, errors.New("a separate disk for the state requires Linux")
}
func (d *disk) path() string { return "" }
func (d *disk) close() error { return nil }
