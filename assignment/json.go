package assignment

import "strconv"

// MarshalJSON returns the JSON form, which holds everything that the assignment
// does: keys, ids and checksum as hexadecimal strings, generations as numbers.
//
//	{"job":"cache","store_id":"9c1d0f3a5577e802","generation":1772366400000,"previous":1772366395000,"horizon":0,
//	 "tasks":[{"index":0,"name":"cache-a","incarnation":"5be04d9a31c77f01","address":"10.0.0.1:8080","zone":"eu-1","weight":1,"state":"running"}],
//	 "slices":[{"start":"0000000000000000","end":"8000000000000000","replicas":[{"task":"cache-a","since":1772366400000}]}],
//	 "checksum":"0f66a3b1b15fb8a2"}
//
// It never fails.
func (a *Assignment) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 256+192*len(a.tasks)+128*len(a.c.Owners))
	text := func(key, v string) { b = strconv.AppendQuote(append(b, key...), v) } // printable ASCII: Go quotes it as JSON does
	number := func(key string, v int64) { b = strconv.AppendInt(append(b, key...), v, 10) }
	text(`{"job":`, a.h.Job)
	text(`,"store_id":`, hex16(a.h.StoreID))
	number(`,"generation":`, int64(a.h.Generation))
	number(`,"previous":`, int64(a.h.Previous))
	number(`,"horizon":`, int64(a.h.Horizon))
	b = append(b, `,"tasks":[`...)
	for i, t := range a.tasks {
		if i > 0 {
			b = append(b, ',')
		}
		number(`{"index":`, int64(t.Index))
		text(`,"name":`, t.Name)
		text(`,"incarnation":`, hex16(t.Incarnation))
		text(`,"address":`, t.Address)
		text(`,"zone":`, t.Zone)
		b = strconv.AppendFloat(append(b, `,"weight":`...), t.Weight, 'g', -1, 64)
		text(`,"state":`, t.State.String())
		b = append(b, '}')
	}
	b = append(b, `],"slices":[`...)
	for i := range a.c.Starts {
		if i > 0 {
			b = append(b, ',')
		}
		s, r := a.Slice(i), a.Replicas(i)
		b = append(appendHex16(append(b, `{"start":"`...), uint64(s.Start)), '"')
		b = append(appendHex16(append(b, `,"end":"`...), uint64(s.End)), '"')
		b = append(b, `,"replicas":[`...)
		for j := range r.Len() {
			if j > 0 {
				b = append(b, ',')
			}
			text(`{"task":`, r.At(j).Name)
			number(`,"since":`, int64(r.Since(j)))
			b = append(b, '}')
		}
		b = append(b, `]}`...)
	}
	text(`],"checksum":`, hex16(a.Checksum()))
	return append(b, '}'), nil
}
