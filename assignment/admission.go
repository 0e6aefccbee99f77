package assignment

// Admission is whether the tasks of a job refuse requests that they have no room for.
type Admission uint8

const (
	// AdmissionOff refuses none, and does not look.
	AdmissionOff Admission = iota + 1
	// AdmissionReport refuses none, and tells what it would refuse in metrics.
	AdmissionReport
	// AdmissionOn refuses them.
	AdmissionOn
)

const admissions = "off, report or on"

var admissionNames = [...]string{"", AdmissionOff: "off", AdmissionReport: "report", AdmissionOn: "on"}

// String is off, report or on, and empty for what does not exist.
func (a Admission) String() string {
	if !a.Valid() {
		return ""
	}
	return admissionNames[a]
}

// Valid reports whether a is one of the three.
func (a Admission) Valid() bool { return a >= AdmissionOff && a <= AdmissionOn }

// ParseAdmission reads what String prints, but not the empty text.
func ParseAdmission(s string) (Admission, error) {
	for a := AdmissionOff; a <= AdmissionOn; a++ {
		if s == admissionNames[a] {
			return a, nil
		}
	}
	return 0, &FieldError{"admission", s, admissions}
}
