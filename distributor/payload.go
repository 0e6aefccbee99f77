package distributor

import (
	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/distributor/internal/prepared"
)

// send sends all of the messages and returns how many bytes that is. An error that
// matches prepared.ErrBuild leaves the stream as it was.
func send(p *prepared.Messages, stream grpc.ServerStream) (size int, err error) {
	err = p.Send(stream, func(bytes int) { size += bytes })
	return size, err
}
