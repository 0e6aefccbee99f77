package clerkhttp

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/clerk"
)

// What gRPC over HTTP/2 says in headers (PROTOCOL-HTTP2.md of gRPC).
const (
	grpcStatus  = "Grpc-Status"
	grpcMessage = "Grpc-Message"
	grpcDetails = "Grpc-Status-Details-Bin"
	grpcType    = "application/grpc"
	// grpcPushback of -1 keeps gRPC's own retries away (gRFC A6).
	grpcPushback = "Grpc-Retry-Pushback-Ms"
	// maxDetails bounds what is decoded of a status's details, bytes.
	maxDetails = 16 << 10
)

// isGRPC reports whether a request or an answer with these headers is gRPC's.
func isGRPC(h http.Header) bool {
	v := h["Content-Type"]
	return len(v) == 1 && strings.HasPrefix(v[0], grpcType)
}

// grpcFailure is the status of an answer without messages, of this code: its status is in
// the header. It is nil if the answer is no such, and without details if they are bad.
func grpcFailure(resp *http.Response, code codes.Code) error {
	v := resp.Header[grpcStatus]
	if len(v) != 1 || v[0] != strconv.Itoa(int(code)) || !isGRPC(resp.Header) {
		return nil
	}
	plain := status.Error(code, resp.Header.Get(grpcMessage))
	text := strings.TrimRight(resp.Header.Get(grpcDetails), "=")
	if text == "" || len(text) > maxDetails {
		return plain
	}
	raw, err := base64.RawStdEncoding.DecodeString(text)
	s := status.New(code, "").Proto()
	if err != nil || proto.Unmarshal(raw, s) != nil {
		return plain
	}
	return status.FromProto(s).Err()
}

// grpcRefusal tells an answer by which a gRPC server of a consistent job says that
// it does not own the key. Another job's is none.
func grpcRefusal(job string, resp *http.Response) (clerk.Refused, bool) {
	refused, ok := clerk.RefusedFromStatus(grpcFailure(resp, codes.Unavailable))
	if !ok || refused.Job != "" && refused.Job != job {
		return clerk.Refused{}, false
	}
	return refused, true
}

// grpcLoss tells an answer by which it says that it lost the key while the RPC ran.
func grpcLoss(job string, resp *http.Response) (clerk.Lost, bool) {
	lost, ok := clerk.LostFromStatus(grpcFailure(resp, codes.Aborted))
	if !ok || lost.Job != "" && job != "" && lost.Job != job {
		return clerk.Lost{}, false
	}
	return lost, true
}

// grpcError answers a gRPC request that no task has answered, in gRPC's words.
func grpcError(w http.ResponseWriter, text string, code int) {
	c := codes.Unavailable
	switch code {
	case http.StatusBadRequest:
		c = codes.InvalidArgument
	case http.StatusGatewayTimeout:
		c = codes.DeadlineExceeded
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		c = codes.ResourceExhausted
	}
	h := w.Header()
	h.Set("Content-Type", grpcType)
	h.Set(grpcStatus, strconv.Itoa(int(c)))
	h.Set(grpcMessage, strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '%' {
			return '?'
		}
		return r
	}, text))
	w.WriteHeader(http.StatusOK)
}
