package series

import "github.com/prometheus/client_golang/prometheus"

// Register registers all, or none if that fails. What it returns takes them back. A nil
// Registerer is none.
func Register(reg prometheus.Registerer, all ...prometheus.Collector) (unregister func(), err error) {
	if reg == nil {
		return func() {}, nil
	}
	done := 0
	unregister = func() {
		for _, c := range all[:done] {
			reg.Unregister(c)
		}
	}
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			unregister()
			return nil, err
		}
		done++
	}
	return unregister, nil
}
