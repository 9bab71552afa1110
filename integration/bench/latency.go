package bench

import "context"

type LatencyPlan struct{ Load Workload }
type Latency struct{}

func (l *Latency) String() string                                          { return "" }
func (p *Plan) latency(ctx context.Context, r *run, into *Run) (err error) { return nil }

func DefaultLatencyPlan(seed uint64) *LatencyPlan { return nil }
func (l *LatencyPlan) Quick()                     {}
