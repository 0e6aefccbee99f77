package fanout

import slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"

// Hello is a subscriber's first message, checked.
type Hello struct {
	Job      string
	Role     slicerv1.Role
	Name     string // as metrics, logs and stragglers call it
	Held     Version
	Checksum uint64           // of what is held
	Task     *slicerv1.Task   // slicelets only
	Report   *slicerv1.Report // slicelets only, nil if there was none
	Client   string           // clerks only: the client id
	Index    int              // and the index that it holds, -1 if none

	// Compressed: it reads compressed wholes. Parts: it reads the part for its task, slicelets
	// only.
	Compressed, Parts bool
}
