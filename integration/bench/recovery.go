package bench

import "context"

type RecoveryPlan struct{ Load Workload }
type Recovery struct{}

func (l *Recovery) String() string                                          { return "" }
func (p *Plan) recovery(ctx context.Context, r *run, into *Run) (err error) { return nil }

func DefaultRecoveryPlan(seed uint64) *RecoveryPlan { return nil }
func (l *RecoveryPlan) Quick()                      {}
