package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"syscall"

	"kudos/bench/child"
)

func run(ctx context.Context, c child.Command) error {
	p, err := child.Start(c)
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("%s was interrupted: %w", c.Name, context.Cause(ctx))
	}
	if err := p.Exit(); err != nil {
		return fmt.Errorf("%s failed: %w\n%s", c.Name, err, child.Tail(c.Log))
	}
	return nil
}

// account is the unprivileged account of a server if this process runs as root: MariaDB and MySQL refuse to run as
// root, because anyone who reaches their port may write files with their privileges.
type account struct {
	name     string
	uid, gid uint32
}

// unprivileged returns the account for a database server, nil if this process has no privileges to drop.
func unprivileged() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"mysql", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		a := &account{name: name}
		if _, err := fmt.Sscan(u.Uid+" "+u.Gid, &a.uid, &a.gid); err != nil {
			return nil, fmt.Errorf("account %s: %w", name, err)
		}
		return a, nil
	}
	return nil, errors.New("running as root, and this machine has neither an account mysql nor an account nobody for " +
		"the database: run as another user")
}

func (a *account) runs(attributes *syscall.SysProcAttr) {
	if a != nil {
		attributes.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
}

// own makes the account the owner of a directory, and checks that it can reach the directory.
func (a *account) own(dir string) error {
	if a == nil {
		return nil
	}
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("account %s cannot enter %s, which is to contain its data: set Dir (or TMPDIR)",
				a.name, parent)
		}
		if parent == filepath.Dir(parent) {
			break
		}
	}
	return os.Chown(dir, int(a.uid), int(a.gid))
}
