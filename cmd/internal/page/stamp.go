package page

import slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"

// stampBy is who gave an order.
func stampBy(s *slicerv1.Stamp) string {
	switch id := s.GetIdentity(); {
	case id != "" && id != "anonymous":
		return id
	case s.GetWho() != "":
		return s.GetWho()
	}
	return "an operator"
}

func reason(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
