package loadbalance

// diff compares the placement with Prev, piece after piece in order of key.
type diff struct {
	b       *placement
	at      int  // the slice of Prev in which the last piece began
	changed bool // slices or owners, as sets, are not those of Prev
	// The share of the keyspace that got an owner which did not have it, and the
	// share of the load that such owners carry; 0 when there was nothing before.
	keys, load float64
}

func (d *diff) add(p *piece) {
	b, prev := d.b, d.b.in.Prev
	if prev == nil {
		d.changed = true
		return
	}
	for prev.Slice(d.at).End <= p.start {
		d.at++
	}
	for m := d.at; m < prev.NumSlices() && prev.Slice(m).Start < p.end; m++ {
		s, r := prev.Slice(m), prev.Replicas(m)
		gained := p.replicas()
		for j := range r.Len() {
			if t := b.prevTask[r.Position(j)]; t >= 0 && b.has(p, uint32(t)) {
				gained--
			}
		}
		if s != p.slice() || r.Len() != p.replicas() || gained > 0 {
			d.changed = true
		}
		if gained == 0 {
			continue
		}
		both, _ := s.Intersect(p.slice())
		d.keys += both.Fraction()
		if b.total > 0 {
			at := b.fine.portion(p.slice(), both.End) - b.fine.portion(p.slice(), both.Start)
			d.load += at * p.load / b.total * float64(gained) / float64(p.replicas())
		}
	}
}
