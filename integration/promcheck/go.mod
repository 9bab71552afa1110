module kudos/integration/promcheck

go 1.26.5

require github.com/prometheus/prometheus v0.309.1
