package subset

import (
	"fmt"
	"strings"
)

// Algorithms returns every algorithm of the package in its default form, in the
// order in which the article develops them. The caller owns the slice.
func Algorithms() []Algorithm {
	return []Algorithm{
		Random{},
		Rendezvous{},
		RoundRobin{},
		DeterministicDropped{},
		DeterministicBalanced{},
		Consistent{},
		Ringsteady{Scaling: RawPositions},
		Ringsteady{Scaling: BackendScaled},
		Ringsteady{Scaling: BothScaled},
		Rocksteadier{},
	}
}

// ByName returns the algorithm of [Algorithms] with the given name. The error
// for an unknown name lists the names there are.
func ByName(name string) (Algorithm, error) {
	var names []string
	for _, a := range Algorithms() {
		if a.Name() == name {
			return a, nil
		}
		names = append(names, a.Name())
	}
	return nil, fmt.Errorf("subset: algorithm is %q, want one of %s", name, strings.Join(names, ", "))
}
