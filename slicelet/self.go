package slicelet

// Task is the task's name.
func (s *Slicelet) Task() string { return s.me.Name }

// CPU is the process's CPU as a share of what it may use, 0 to 1, in the window of
// the last report; 0 when not known.
func (s *Slicelet) CPU() float64 {
	if last, _ := s.recorder.newest(); last != nil {
		return last.CPU
	}
	return 0
}
