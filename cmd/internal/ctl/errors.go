package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/cmd/internal/run"
)

// Exit codes besides those of package run.
const (
	exitNotFound    = 3
	exitUnreachable = 4
	exitPending     = 5
	exitFaults      = 6
	exitUnwell      = 7
)

// codedError is an error with the exit code that it ends the program with.
type codedError struct {
	msg  string
	code int
}

func (e *codedError) Error() string { return e.msg }

// ExitCode tells run.Execute.
func (e *codedError) ExitCode() int { return e.code }

func notFoundf(format string, args ...any) error {
	return &codedError{fmt.Sprintf(format, args...), exitNotFound}
}

// explain turns what a call ended with into a sentence for an operator and
// an exit code. Errors that are no gRPC status pass through.
func (c *client) explain(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			s = status.New(codes.DeadlineExceeded, "")
		default:
			return err
		}
	}
	msg := s.Message()
	switch s.Code() {
	case codes.Unavailable:
		if strings.Contains(msg, "no certificate was presented") {
			msg = strings.TrimSuffix(msg, `"`) + "; --tls-cert and --tls-key name one"
		}
		if _, why, ok := strings.Cut(msg, "connection error: desc = "); ok {
			return &codedError{fmt.Sprintf("cannot reach %s: %s (%s says where a Distributor is)", c.server, transport(why), c.named), exitUnreachable}
		}
		if _, why, ok := strings.Cut(msg, "name resolver error: "); ok {
			why = strings.Replace(why, "produced zero addresses", "there is no address of that name", 1)
			return &codedError{fmt.Sprintf("cannot find %s: %s", c.server, why), exitUnreachable}
		}
		for _, broken := range []string{"error reading from server", "read tcp", "write tcp", "closing transport"} {
			if strings.HasPrefix(msg, broken) {
				return &codedError{fmt.Sprintf("the connection to %s broke: %s", c.server, msg), exitUnreachable}
			}
		}
		return &codedError{fmt.Sprintf("%s cannot answer now: %s", c.server, msg), exitUnreachable}
	case codes.DeadlineExceeded:
		return &codedError{fmt.Sprintf("no answer from %s within %s", c.server, c.timeout), exitUnreachable}
	case codes.Canceled:
		return &codedError{"interrupted", run.ExitFailed}
	case codes.NotFound:
		return &codedError{msg, exitNotFound}
	case codes.Unimplemented:
		if strings.HasPrefix(msg, "unknown ") {
			msg = "it does not know this call: is it a Distributor?"
		}
		return &codedError{fmt.Sprintf("%s: %s", c.server, msg), run.ExitFailed}
	case codes.InvalidArgument, codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted, codes.PermissionDenied, codes.ResourceExhausted:
		return &codedError{msg, run.ExitFailed}
	}
	return &codedError{fmt.Sprintf("%s answers %s: %s", c.server, s.Code(), msg), run.ExitFailed}
}

// transport shortens what gRPC says about a failed connection.
func transport(why string) string {
	why = strings.Trim(why, `"`)
	why = strings.TrimPrefix(why, "transport: ")
	why = strings.TrimPrefix(why, "Error while dialing: ")
	switch {
	case why == "error reading server preface: EOF":
		why += "; does it want TLS (--tls-ca)?"
	case strings.Contains(why, "first record does not look like a TLS handshake"):
		why = "it does not speak TLS: leave out --tls-ca and --tls-cert, or name another server"
	case strings.Contains(why, "looked like an HTTP/1.1 header"):
		why = "it speaks HTTP/1.1, as the port of --http does"
	}
	return strings.ReplaceAll(why, `\"`, `"`)
}

// exitCode is what the program would end with.
func exitCode(err error) int {
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return run.ExitFailed
}
