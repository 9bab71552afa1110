//go:build !linux

package chaos

import "errors"

// disk is a file system of its own, which only Linux has an easy way to make.
type disk struct{}

func newDisk(int64) (*disk, error) {
	return nil, errors.New("disks of their own are made on Linux only")
}
func (d *disk) path() string { return "" }
func (d *disk) close() error { return nil }
