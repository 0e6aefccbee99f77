package sim

import (
	"io"
	"math"
)

// Next makes the next window.
func (g *generator) Next() (Window, error) {
	if g.round >= g.w.Rounds {
		return Window{}, io.EOF
	}
	w := Window{StartMS: int64(g.round) * g.w.IntervalMS, Keys: g.keys, Load: g.load}
	if g.round == 0 || !g.fixed {
		w.Shifted = g.fill()
	}
	g.round++
	return w, nil
}

// fill computes the load of every key in the coming window.
func (g *generator) fill() (shifted bool) {
	requests := g.w.Requests
	put := func(rank int, share float64) { g.load[g.order[rank]] = share * requests }
	switch g.w.Name {
	case "a":
		shifted = g.round > 0 && g.round%shiftEvery == 0
		if shifted {
			g.rng.Shuffle(len(g.order), func(i, j int) { g.order[i], g.order[j] = g.order[j], g.order[i] })
		}
		for i, v := range g.base {
			put(i, v)
		}
	case "c":
		day := float64(g.round) * float64(g.w.IntervalMS) / 86_400_000 * max(g.speed, 1)
		sum := 0.0
		for i, v := range g.base {
			v *= 1 + .5*math.Sin(2*math.Pi*(day+g.state[i]))
			put(i, v)
			sum += v
		}
		g.scale(sum)
	case "g":
		// Up and down once in the whole replay, evenly on a logarithmic scale.
		x := 1 - math.Abs(2*float64(g.round)/float64(max(g.w.Rounds-1, 1))-1)
		means := .02 * math.Pow(200, x)
		share := min(means/float64(g.w.Tasks), .9)
		put(0, share)
		for i := 1; i < len(g.base); i++ {
			put(i, (1-share)/float64(len(g.base)-1))
		}
	case "h":
		// An hour or so is how long a key stays what it is.
		const keep, spread = .95, .5
		sum := 0.0
		for i, v := range g.base {
			if i < len(g.state) {
				if g.round > 0 {
					g.state[i] = keep*g.state[i] + math.Sqrt(1-keep*keep)*g.rng.NormFloat64()
				}
				v *= math.Exp(spread * g.state[i])
			}
			put(i, v)
			sum += v
		}
		g.scale(sum)
	default:
		for i, v := range g.base {
			put(i, v)
		}
	}
	return shifted
}

// scale makes the shares of a window, which add up to sum, add up to 1 again.
func (g *generator) scale(sum float64) {
	for i := range g.load {
		g.load[i] /= sum
	}
}
