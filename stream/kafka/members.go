package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// RefuseMembers fails if one of the groups has members. what names them in the error, for the operator who has to stop
// them.
func RefuseMembers(ctx context.Context, cl *kgo.Client, what string, groups ...string) error {
	described, err := kadm.NewClient(cl).DescribeGroups(ctx, groups...)
	if err != nil {
		return fmt.Errorf("looking for running %s: %w", what, err)
	}
	for _, g := range described.Sorted() {
		if g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound) {
			return fmt.Errorf("looking for running %s in group %s: %w", what, g.Group, g.Err)
		}
		if n := len(g.Members); n > 0 {
			return fmt.Errorf("group %s has %d members: stop all %s first (one that was killed is missed after its "+
				"session_timeout)", g.Group, n, what)
		}
	}
	return nil
}
