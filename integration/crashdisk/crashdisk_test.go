package crashdisk

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLockIsNotTakenTwice(t *testing.T) {
	const times = 2000
	works := map[string]func(d *Disk, i int) error{
		"link": func(d *Disk, i int) error { return d.Link("0", fmt.Sprint("link", i)) },
		"reuse": func(d *Disk, i int) error {
			f, err := d.ReuseForWrite(fmt.Sprint(i), fmt.Sprint(i+1), vfs.WriteCategoryUnspecified)
			if err != nil {
				return err
			}
			return f.Close()
		},
		"lock": func(d *Disk, i int) error {
			l, err := d.Lock(fmt.Sprint("lock", i))
			if err != nil {
				return err
			}
			return l.Close()
		},
	}
	for name, work := range works {
		t.Run(name, func(t *testing.T) {
			d := New()
			f, err := d.Create("0", vfs.WriteCategoryUnspecified)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			done := make(chan struct{})
			go func() { // leaks only if there is a deadlock
				defer close(done)
				var both sync.WaitGroup
				both.Go(func() {
					for i := range times {
						if !assert.NoError(t, work(d, i)) {
							return
						}
					}
				})
				both.Go(func() {
					for range times {
						d.CrashClone(vfs.CrashCloneCfg{})
					}
				})
				both.Wait()
			}()
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Fatal("concurrent writes and crash clones deadlock")
			}
		})
	}
}
